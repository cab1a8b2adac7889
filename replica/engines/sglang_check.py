"""Ask an installed SGLang, in its own interpreter, what it makes of command lines."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from replica.engines.sglang_flags import RENAMED, VERSION
from replica.errors import ReplicaError
from replica.settings import inherited_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCRIPT: Final = Path(__file__).with_name("sglang_resolver.py")
ASK_S_MAX: Final = 300.0
_SAID: Final = 400
_SHEBANG_BYTES: Final = 1024
_STARTED: Final = re.compile(r"""'''exec' (?P<q>"?)(?P<path>/[^"]+)(?P=q) "\$0" """)

KINDS: Final[dict[str, dict[str, Any]]] = {
    "b200": {"capability": [10, 0], "memory_mib": 183_359},
    "b300": {"capability": [10, 3], "memory_mib": 275_040},
}
"""What SGLang's probes find on the GPUs that it can be asked for: compute capability, memory."""
TOLD: Final = (
    "quantization", "kv_cache_dtype", "attention_backend", "page_size", "moe_runner_backend",
    "fp4_gemm_runner_backend", "sampling_backend", "grammar_backend", "chunked_prefill_size",
    "max_running_requests", "mem_fraction_static", "schedule_policy", "disable_overlap_schedule",
    "min_free_slots_delay", "prefill_decode_interval", "speculative_num_draft_tokens",
    "speculative_draft_attention_backend", "speculative_draft_model_quantization",
    "speculative_draft_kv_cache_dtype", "hicache_size", "hicache_ratio", "hicache_io_backend",
    "hicache_mem_layout", "flashinfer_allreduce_fusion_backend", "disable_shared_experts_fusion", "cuda_graph_decode_backend", "cuda_graph_decode_max_bs",
    "cuda_graph_prefill_backend",
)  # fmt: skip
"""The fields worth a look where SGLang fills them in or changes them."""


@dataclass(slots=True, frozen=True)
class Answer:
    """What SGLang said of one command line; ``fault`` None if it takes it."""

    version: str | None
    fault: ReplicaError | None
    asked: Mapping[str, Any] = field(default_factory=dict)
    resolved: Mapping[str, Any] = field(default_factory=dict)

    def differences(self) -> list[tuple[str, Any, Any]]:
        """Field, what was asked and what it becomes, of the fields worth a look that differ."""
        return [
            (name, self.asked.get(name), self.resolved.get(name))
            for name in TOLD
            if self.asked.get(name) != self.resolved.get(name)
        ]


def engine_python(given: str | None = None) -> Path:
    """The engine's interpreter: the one given, else that of the ``sglang`` command.

    Raises:
        ReplicaError: ``no-engine``.
    """
    if given is not None:
        path = Path(given).expanduser()
        if not path.is_file():
            raise ReplicaError("no-engine", f"--python {given}: there is no such file")
        return path
    command = shutil.which("sglang")
    if command is None:
        raise ReplicaError(
            "no-engine",
            "no sglang command is on the PATH: install SGLang in an environment of its own, or give that one's"
            " interpreter with --python",
        )
    with Path(command).open("rb") as file:
        first, second = (
            file.readline(_SHEBANG_BYTES).decode(errors="replace").strip() for _ in range(2)
        )
    # Where its path has a space, or is long, pip lets a shell start the interpreter.
    started = _STARTED.match(second)
    named = first.removeprefix("#!").split(" ")[0] if started is None else started["path"]
    if not first.startswith("#!/") or not Path(named).is_file():
        raise ReplicaError(
            "no-engine", f"{command} does not name its interpreter: give it with --python"
        )
    return Path(named)


def ask(
    python: Path,
    lines: Sequence[tuple[Sequence[str], str]],
    *,
    environment: Mapping[str, str],
) -> list[Answer]:
    """What SGLang says to each command line (the words behind ``sglang serve``) on a device.

    A device is a name of :data:`KINDS`, or ``cpu``; one call asks for GPUs or for a CPU. One start
    of the interpreter, mostly imports, answers all.

    Raises:
        ReplicaError: ``gpu-unsupported`` for another device, ``engine-silent`` where no answer came.
    """
    questions = [{"argv": list(argv), "gpu": _kind(device)} for argv, device in lines]
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder) / "answers.json"
        said = _run([str(python), "-P", str(SCRIPT), str(answers)], questions, environment)
        if not answers.exists():
            lines_said = said.strip().splitlines() or ["nothing"]
            raise ReplicaError(
                "engine-silent",
                f"{python} did not run SGLang's argument check, it said: {lines_said[-1][:_SAID]}",
            )
        rows = json.loads(answers.read_text())
    return [_answer(row) for row in rows]


def _run(command: list[str], questions: list[Any], environment: Mapping[str, str]) -> str:
    variables = {"HF_HUB_OFFLINE": "1", **inherited_environment(), **environment}
    try:
        ended = subprocess.run(  # noqa: S603  (the interpreter that the operator names)
            command,
            input=json.dumps(questions),
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=ASK_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"nothing within {ASK_S_MAX:g} s"
    except OSError as failure:
        return str(failure)
    return ended.stderr


def _kind(device: str) -> dict[str, Any] | None:
    if device == "cpu":
        return None
    kind = KINDS.get(device)
    if kind is None:
        raise ReplicaError(
            "gpu-unsupported",
            f"{device} is for planning only: SGLang can be asked for {', '.join(KINDS)}",
        )
    return kind


def _answer(row: dict[str, Any]) -> Answer:
    stage, error = row["stage"], str(row["error"] or "")
    fault = None
    if stage != "accepted":
        fault = _fault(stage, " ".join(error.split())[:_SAID])
    return Answer(row["version"], fault, row.get("asked") or {}, row.get("resolved") or {})


def _fault(stage: str, error: str) -> ReplicaError:
    """An engine's refusal in one line; a flag that is gone is told with its successor."""
    if stage == "import":
        return ReplicaError("no-engine", f"SGLang cannot be imported there: {error}")
    if stage == "parse":
        for flag in re.findall(r"--([a-z0-9-]+)", error):
            if flag in RENAMED:
                return ReplicaError(
                    "flag-renamed",
                    f"SGLang {VERSION} has no --{flag}; it is now {RENAMED[flag]} ({error})",
                )
        return ReplicaError("flag-refused", f"SGLang's parser refuses: {error}")
    return ReplicaError("engine-refuses", f"SGLang refuses this combination: {error}")

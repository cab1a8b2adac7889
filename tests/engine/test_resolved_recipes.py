"""SGLang's own parser, resolution and checks take every recipe, and say so of what is wrong with one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.engines.sglang import launch_of
from replica.engines.sglang_check import Answer, ask
from replica.engines.sglang_flags import DRAFT, FLAGS, PLAIN, RENAMED, VERSION
from replica.engines.stand_in_configs import write_stand_ins
from replica.hardware.models import KIMI_K26
from tests.doubles.engines import PYTHON, tiny_model
from tests.unit.replica_recipes.setups import every_recipe, kimi, set_up

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

FOR_GPUS = [row for row in every_recipe() if row[2] != "cpu"]
FOR_A_CPU = [row for row in every_recipe() if row[2] == "cpu"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    target, draft = write_stand_ins(KIMI_K26, tmp_path_factory.mktemp("shapes"))
    return str(target), str(draft)


@pytest.fixture(scope="module")
def answers(folders: tuple[str, str]) -> dict[str, Answer]:
    """SGLang's answer to every recipe for a GPU, from one start of its interpreter."""
    launches = [
        launch_of(set_up(recipe, gpu=gpu, tp=tp), model_path=folders[0], draft_path=folders[1])
        for _, recipe, gpu, tp in FOR_GPUS
    ]
    lines = [
        (launch.argv[2:], gpu) for launch, (_, _, gpu, _) in zip(launches, FOR_GPUS, strict=True)
    ]
    said = ask(PYTHON, lines, environment=launches[0].environment)
    return {row[0]: answer for row, answer in zip(FOR_GPUS, said, strict=True)}


def said_of(folders: tuple[str, str], *more: str, without: tuple[str, ...] = ()) -> Answer:
    argv = list(launch_of(kimi(), model_path=folders[0], draft_path=folders[1]).argv[2:])
    for flag in without:
        del argv[argv.index(flag)]
    return ask(PYTHON, [([*argv, *more], "b200")], environment={})[0]


@pytest.mark.parametrize(("label", "gpu", "tp"), [(row[0], *row[2:]) for row in FOR_GPUS])
def test_every_recipe_is_accepted(
    answers: dict[str, Answer], label: str, gpu: str, tp: int
) -> None:
    answer = answers[label]
    assert answer.fault is None, str(answer.fault)
    assert (answer.version, gpu in ("b200", "b300")) == (VERSION, True)
    resolved = answer.resolved
    assert resolved["tp_size"] == tp
    assert (resolved["quantization"], resolved["attention_backend"]) == (
        "modelopt_fp4",
        "trtllm_mla",
    )
    assert (resolved["page_size"], resolved["device"]) == (64, "cuda")
    assert resolved["cuda_graph_prefill_backend"] == "disabled"
    assert resolved["cuda_graph_decode_max_bs"] == resolved["max_running_requests"]
    for name in (
        "mem_fraction_static",
        "kv_cache_dtype",
        "chunked_prefill_size",
        "schedule_policy",
        "prefill_decode_interval",
    ):
        assert resolved[name] == answer.asked[name]


def test_what_sglang_would_resolve_differently_is_told(answers: dict[str, Answer]) -> None:
    changes = answers["kimi-k2.6-nvfp4-interactive-b200-tp4"].differences()
    assert ("disable_shared_experts_fusion", False, True) in changes
    assert ("sampling_backend", None, "flashinfer") in changes
    assert not any(name == "page_size" for name, _, _ in changes)


@pytest.mark.parametrize(("label", "recipe"), [row[:2] for row in FOR_A_CPU])
def test_the_recipe_for_a_cpu_is_accepted(label: str, recipe: object) -> None:
    launch = launch_of(
        set_up(recipe),  # type: ignore[arg-type]
        model_path=str(tiny_model()),
    )
    answer = ask(PYTHON, [(launch.argv[2:], "cpu")], environment=launch.environment)[0]
    assert answer.fault is None, (label, str(answer.fault))
    assert answer.resolved["device"] == "cpu"


def test_the_flags_that_recipes_may_use_are_sglangs(folders: tuple[str, str]) -> None:
    fields = said_of(folders).asked
    # A flag whose field has another name, or that stands for another flag.
    other = {
        "fp4-gemm-backend": "fp4_gemm_runner_backend",
        "fp8-gemm-backend": "fp8_gemm_runner_backend",
    }
    for flag in (*FLAGS, *DRAFT.values(), *PLAIN.values()):
        assert other.get(flag, flag.replace("-", "_")) in fields, flag


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("cuda-graph-max-bs", "16"),
        ("cuda-graph-bs", "16"),
        ("fp4-gemm-runner-backend", "flashinfer_cutlass"),
        ("speculative-dflash-draft-window-size", "4096"),
    ],
)
def test_a_flag_that_sglang_lacks_is_named_with_its_successor(
    folders: tuple[str, str], flag: str, value: str
) -> None:
    fault = said_of(folders, f"--{flag}", value).fault
    assert fault is not None
    assert fault.code == "flag-renamed"
    assert f"no --{flag}; it is now {RENAMED[flag]}" in str(fault)


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (("--no-such-flag",), "flag-refused", "--no-such-flag"),
        (("--kv-cache-dtype", "fp8"), "flag-refused", "invalid choice: 'fp8'"),
        (("--pp-size", "2"), "engine-refuses", "pp_size == 1"),
        (("--enable-priority-scheduling",), "engine-refuses", "must be 'fcfs' or 'lof'"),
    ],
)
def test_what_sglang_refuses_is_told_in_its_words(
    folders: tuple[str, str], more: tuple[str, ...], code: str, words: str
) -> None:
    fault = said_of(folders, *more).fault
    assert fault is not None
    assert fault.code == code
    assert words in str(fault)
    assert "\n" not in str(fault)


def test_an_interpreter_without_sglang_is_named(tmp_path: Path) -> None:
    import sys  # noqa: PLC0415  (this environment has none)
    from pathlib import Path as Interpreter  # noqa: PLC0415

    answer = ask(
        Interpreter(sys.executable), [(["--model-path", str(tmp_path)], "cpu")], environment={}
    )[0]
    assert answer.fault is not None
    assert answer.fault.code == "no-engine"

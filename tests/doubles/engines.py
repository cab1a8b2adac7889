"""Replicas for tests, real and emulated, in the same roles: each a process that has said it is ready.

Real ones are SGLang on this CPU with a tiny model, run by ``.venv-engine`` (``make test-engine``). They
are started together, since most of their start is imports, and each is ended with its whole group.

``python -m tests.doubles.engines FILE [ROLE ...]`` keeps real ones running until it is interrupted;
``pytest -m engine --engines FILE`` then uses them and does not wait for a start.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.doubles.processes import Running, emulate, end, tied

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

ROOT: Final = Path(__file__).parents[2]
SCRIPTS: Final = ROOT / "tests" / "engine"
PYTHON: Final = ROOT / ".venv-engine" / "bin" / "python"

MODEL: Final = "tiny"
PAGE_TOKENS: Final = 64
CONTEXT_TOKENS: Final = 131_072
API_KEY: Final = "key-of-the-fleet"
ADMIN_KEY: Final = "key-of-the-operator"

HEALTH_TIMEOUT_S: Final = 4
"""Until a health check of a hung engine fails, in whole seconds."""
DISCONNECT_POLL_S: Final = 1
"""How often a replica looks whether the client of a silent request has left, in whole seconds."""

READY_S_MAX: Final = 240.0
END_S_MAX: Final = 30.0
_POLL_S: Final = 0.25


@dataclass(frozen=True)
class Role:
    """One configuration of a replica, in tokens and requests, for either kind.

    ``page_tokens`` other than 64, ``has_events`` and ``refuses_priorities`` exist on the real kind only.
    """

    name: str
    capacity_tokens: int = 300_000
    max_running: int = 16
    max_queued: int | None = None
    api_key: str | None = None
    admin_key: str | None = None
    page_tokens: int = PAGE_TOKENS
    has_events: bool = True
    refuses_priorities: bool = False

    @property
    def pool_tokens(self) -> int:
        """What the replica reports as its capacity: whole pages."""
        return self.capacity_tokens // self.page_tokens * self.page_tokens


FLEET: Final = (Role("first"), Role("second"), Role("third"))
TIGHT: Final = Role(
    "tight",
    capacity_tokens=20_000,
    max_running=1,
    max_queued=1,
    api_key=API_KEY,
    admin_key=ADMIN_KEY,
)
LEAVING: Final = Role("leaving", has_events=False)
FINE: Final = Role("fine", page_tokens=1, has_events=False, refuses_priorities=True)
"""Pages of one token: cached tokens are then the exact length of a common prefix. Who gives a priority is refused."""
ALL: Final = (*FLEET, TIGHT, LEAVING, FINE)


@dataclass
class Member:
    """One running replica; ``events_port``, ``replay_port`` and ``load_port`` are of its publishers."""

    role: Role
    url: str
    pid: int
    events_port: int = 0
    replay_port: int = 0
    load_port: int = 0

    @property
    def headers(self) -> dict[str, str]:
        """What a request to it must carry."""
        key = self.role.api_key
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    @property
    def admin_headers(self) -> dict[str, str]:
        """What a control request to it must carry."""
        key = self.role.admin_key or self.role.api_key
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its main process alone, as a supervisor does."""
        os.kill(self.pid, number)


# --- emulated -------------------------------------------------------------------------------------


def _emulated(role: Role, *, time_scale: float) -> Running:
    words: list[str] = ["--model", MODEL, "--host-tokens", "0"]
    words += ["--capacity-tokens", str(role.capacity_tokens)]
    words += ["--max-running-requests", str(role.max_running)]
    words += ["--context-tokens", str(CONTEXT_TOKENS)]
    words += ["--health-timeout", str(HEALTH_TIMEOUT_S)]
    words += ["--disconnect-poll", str(DISCONNECT_POLL_S), "--enable-response-store"]
    if role.max_queued is not None:
        words += ["--max-queued-requests", str(role.max_queued)]
    if role.api_key is not None:
        words += ["--api-key", role.api_key]
    if role.admin_key is not None:
        words += ["--admin-api-key", role.admin_key]
    return emulate(*words, time_scale=time_scale)


def _discard(process: Running) -> None:
    """End it now, whatever still runs there."""
    process.kill()
    end(process)


@contextmanager
def emulated(roles: Iterable[Role], *, time_scale: float = 1.0) -> Iterator[dict[str, Member]]:
    """Emulated replicas in these roles, by the role's name."""
    with ExitStack() as stack:
        started: list[tuple[Role, Running]] = []
        for role in roles:
            process = _emulated(role, time_scale=time_scale)
            stack.callback(_discard, process)
            started.append((role, process))
        members = {}
        for role, process in started:
            process.wait_ready()
            members[role.name] = Member(role, process.url, process.process.pid)
        yield members


# --- real -----------------------------------------------------------------------------------------


def tiny_model() -> Path:
    """The folder of the model, made where it is missing or was made by other code."""
    sources = (
        SCRIPTS / "tiny_model.py",
        SCRIPTS / "template.jinja",
        ROOT / "sim" / "workload" / "text.py",
    )
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    folder = PYTHON.parents[1] / f"model-{digest[:12]}"
    if not folder.exists():
        unfinished = folder.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        maker = (str(PYTHON), str(SCRIPTS / "tiny_model.py"), str(unfinished))
        made = subprocess.run(
            maker, env=_environment(), capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, f"the tiny model could not be made:\n{made.stderr[-2000:]}"
        unfinished.rename(folder)
    return folder


def _environment() -> dict[str, str]:
    """What SGLang is told by variables; one thread a replica, as several share two cores."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {
        **kept,
        "PYTHONPATH": str(SCRIPTS / "stubs"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_ENABLE_REQUEST_HEADER_OVERRIDES": "1",
        "SGLANG_REQUEST_STATE_WAIT_TIMEOUT": str(DISCONNECT_POLL_S),
        "SGLANG_HEALTH_CHECK_TIMEOUT": str(HEALTH_TIMEOUT_S),
    }


def _free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago: SGLang takes no port 0."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Engine:
    """One real replica: SGLang's server with its children, in a process group of its own."""

    def __init__(self, role: Role, folder: Path) -> None:
        self.role = role
        self.port, self.events_port, self.replay_port, self.load_port = _free_ports(4)
        self.log = folder / f"{role.name}.log"
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [*tied(str(PYTHON)), str(PYTHON.with_name("sglang")), "serve", *self._flags()],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def restart_if_ended(self) -> bool:
        """Start it again where a test has ended it; True if it had to be."""
        if self.process.poll() is None:
            return False
        self.wait_ended()
        self.process = self._start()
        self.wait_ready()
        return True

    def _flags(self) -> list[str]:
        role = self.role
        flags = ["--model-path", str(tiny_model()), "--served-model-name", MODEL]
        flags += ["--host", "127.0.0.1", "--port", str(self.port), "--device", "cpu"]
        flags += ["--attention-backend", "torch_native", "--sampling-backend", "pytorch"]
        flags += ["--disable-overlap-schedule", "--enable-metrics", "--enable-cache-report"]
        # Without it one core spins while nothing is asked.
        flags += ["--sleep-on-idle"]
        flags += ["--reasoning-parser", "kimi_k2", "--tool-call-parser", "kimi_k2"]
        flags += ["--enable-response-store"]
        flags += ["--max-total-tokens", str(role.capacity_tokens)]
        flags += ["--max-running-requests", str(role.max_running)]
        flags += ["--page-size", str(role.page_tokens)]
        if role.max_queued is not None:
            flags += ["--max-queued-requests", str(role.max_queued)]
        if role.api_key is not None:
            flags += ["--api-key", role.api_key]
        if role.admin_key is not None:
            flags += ["--admin-api-key", role.admin_key]
        if role.refuses_priorities:
            flags += ["--abort-on-priority-when-disabled"]
        if role.has_events:
            events = {
                "publisher": "zmq",
                "topic": "kv-events",
                "endpoint": f"tcp://*:{self.events_port}",
                "replay_endpoint": f"tcp://*:{self.replay_port}",
            }
            flags += ["--kv-events-config", json.dumps(events)]
            flags += ["--load-publish-endpoint", f"tcp://*:{self.load_port}"]
        return flags

    @property
    def member(self) -> Member:
        """It, as tests see a replica."""
        url = f"http://127.0.0.1:{self.port}"
        ports = (self.events_port, self.replay_port, self.load_port)
        return Member(self.role, url, self.process.pid, *ports)

    def wait_ready(self) -> None:
        """Wait for ``/ready``; fails with the end of its log."""
        until_s = time.monotonic() + READY_S_MAX
        request = f"{self.member.url}/ready"
        while time.monotonic() < until_s and self.process.poll() is None:
            with (
                suppress(OSError, urllib.error.HTTPError),
                urllib.request.urlopen(request, timeout=5),
            ):
                return
            time.sleep(_POLL_S)
        ended = self.process.poll()
        state = f"ended with {ended}" if ended is not None else f"not ready in {READY_S_MAX:g} s"
        raise AssertionError(f"replica {self.role.name} {state}:\n{self.log.read_text()[-4000:]}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def wait_ended(self) -> None:
        """Wait for the main process, then see that nothing of the group is left."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_S_MAX)
        self.signal(signal.SIGKILL)
        self.process.wait(END_S_MAX)
        assert is_gone(self.process.pid), f"processes of replica {self.role.name} are left"


def is_gone(group: int, *, within_s: float = END_S_MAX) -> bool:
    """Whether no process of a group lives, waiting a while for the last ones."""
    until_s = time.monotonic() + within_s
    while is_living(group):
        if time.monotonic() > until_s:
            return False
        time.sleep(_POLL_S)
    return True


def is_living(group: int) -> bool:
    """Whether a process of this group is more than a remembered exit code."""
    return any(its_group == group and state != "Z" for its_group, state in _processes())


def _processes() -> Iterator[tuple[int, str]]:
    """The group and the state's letter of every process here."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name in brackets may hold anything; the state and the parent come behind it.
            behind = path.read_text().rpartition(")")[2].split()
            yield int(behind[2]), behind[0]


@contextmanager
def running_engines(roles: Iterable[Role], folder: Path) -> Iterator[list[Engine]]:
    """Real replicas in these roles, ready; their logs lie in ``folder``."""
    assert PYTHON.exists(), "there is no .venv-engine: run `make test-engine`"
    tiny_model()
    engines: list[Engine] = []
    try:
        engines += (Engine(role, folder) for role in roles)
        for engine in engines:
            engine.wait_ready()
        yield engines
    finally:
        for engine in engines:
            engine.signal(signal.SIGTERM)
        for engine in engines:
            engine.wait_ended()


def read_kept(file: Path) -> dict[str, Member]:
    """The replicas that another process keeps, by the role's name."""
    rows = json.loads(file.read_text())
    return {row["role"]["name"]: Member(**{**row, "role": Role(**row["role"])}) for row in rows}


def keep(file: Path, names: Collection[str]) -> None:
    """Start the real replicas of these names, say where they are, and start again what a test ends."""
    roles = [role for role in ALL if not names or role.name in names]
    with tempfile.TemporaryDirectory() as folder, running_engines(roles, Path(folder)) as engines:
        is_changed = True
        while True:
            if is_changed:
                file.write_text(json.dumps([asdict(engine.member) for engine in engines]))
                sys.stderr.write(f"{len(engines)} replicas, see {file}; logs in {folder}\n")
            time.sleep(1.0)
            is_changed = any(engine.restart_if_ended() for engine in engines)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        keep(Path(sys.argv[1]), sys.argv[2:])

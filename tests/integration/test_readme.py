"""Every command of the README, run as it is printed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
_OF_MAKE = ("ARGS", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS")


def commands() -> list[str]:
    """The commands of all ``sh`` blocks, continued lines joined, comments dropped."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines: list[str] = []
    for block in re.findall(r"^```sh\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        lines += block.replace("\\\n", " ").splitlines()
    return [re.sub(r"\s+", " ", re.sub(r"\s{2,}#.*", "", line)).strip() for line in lines if line]


def _environment(home: Path) -> dict[str, str]:
    """Of somebody who has just arrived, whatever ``make`` and with which arguments runs these tests."""
    own = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
    return {**own, "HOME": str(home), "PIP_NO_COMPILE": "1"}  # what is imported is compiled


def _run(command: str, home: Path, *, timeout_s: float = 120) -> str:
    done = subprocess.run(
        ["/bin/sh", "-ec", command],
        cwd=ROOT,
        env=_environment(home),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class _Background:
    """A command that runs until it is interrupted."""

    def __init__(self, command: str, home: Path) -> None:
        self.command = command
        self.process = subprocess.Popen(
            ["/bin/sh", "-ec", f"exec {command}"],
            cwd=ROOT,
            env=_environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def until(self, pattern: str) -> str:
        """Read lines until one matches."""
        assert self.process.stdout is not None
        seen = []
        for line in self.process.stdout:
            seen.append(line)
            if re.search(pattern, line):
                return line
        raise AssertionError(f"{self.command} ended without {pattern!r}:\n{''.join(seen)}")

    def interrupt(self) -> int:
        """Ctrl-C, as a terminal sends it: to the whole group."""
        os.killpg(self.process.pid, signal.SIGINT)
        assert self.process.stdout is not None
        self.process.stdout.read()
        return self.process.wait(30)

    def kill(self) -> None:
        """Whatever is left."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_the_readme_has_the_commands_that_are_run_here() -> None:
    installs = [c for c in commands() if c.startswith(("python3 -m venv", "~/.homeport/bin/pip"))]
    runs = [c for c in commands() if c.startswith("~/.homeport/bin/homeport")]
    curls = [c for c in commands() if c.startswith("curl")]
    exports = [c for c in commands() if c.startswith("export")]
    makes = [c for c in commands() if c.startswith("make")]
    assert makes == ["make demo", "make test"]
    assert (len(installs), len(runs), len(curls), len(exports)) == (3, 5, 4, 2)
    assert [c for c in commands() if c.startswith(".venv/bin/homeport")] == [simulation()]
    assert len(commands()) == 17


@pytest.mark.timeout(150)
def test_make_demo_shows_traffic_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    if not (ROOT / ".venv").exists():
        pytest.skip("make's own .venv is not here")
    demo = _Background("make demo", tmp_path)
    try:
        demo.until(r"ANTHROPIC_BASE_URL=http://127\.0\.0\.1:\d+")
        demo.until(r"[1-9]\d* requests, .*hit ratio")
        demo.interrupt()
    finally:
        demo.kill()


def simulation() -> str:
    """The one command of the simulator's section."""
    return next(c for c in commands() if c.startswith(".venv/bin/homeport sim"))


@pytest.mark.timeout(150)
def test_comparing_policies_prints_a_table_and_writes_a_page(tmp_path: Path) -> None:
    if not (ROOT / ".venv").exists():
        pytest.skip("make's own .venv is not here")
    table = _run(simulation(), tmp_path, timeout_s=140)
    assert {"home", "rendezvous", "reference"} <= {
        line.split(" ")[0] for line in table.splitlines()
    }
    assert "</html>" in (tmp_path / "steady.html").read_text(encoding="utf-8")


def test_make_test_runs_this_suite(tmp_path: Path) -> None:
    assert "-m pytest" in _run("make -n test", tmp_path)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home folder with the application installed by the README's own commands."""
    home = tmp_path_factory.mktemp("home")
    for command in commands():
        if command.startswith(("python3 -m venv", "~/.homeport/bin/pip")):
            _run(command, home)
    yield home
    shutil.rmtree(home, ignore_errors=True)


def _is_free(port: int) -> bool:
    listening = Path("/proc/net/tcp")
    if not listening.exists():
        return True
    rows = [line.split() for line in listening.read_text().splitlines()[1:]]
    return all(not (row[1].endswith(f":{port:04X}") and row[3] == "0A") for row in rows)


@pytest.mark.timeout(300)
def test_install_serve_and_ask(installed: Path) -> None:
    """The fleet section in its order: check, emulated replicas, serve, and the curls."""
    if not all(_is_free(port) for port in (30_000, 30_080, 31_000, 31_001)):
        pytest.skip("the README's ports are taken on this machine")
    check, serve, emulate, *plans = (
        c for c in commands() if c.startswith("~/.homeport/bin/homeport")
    )
    plan, launch = (_run(c, installed) for c in plans)
    assert "memory of each device" in plan
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3" in launch
    assert "http://127.0.0.1:31000" in _run(check, installed)
    replicas = _Background(emulate, installed)
    router = None
    try:
        replicas.until("replica ready url=http://127.0.0.1:31001")
        router = _Background(serve, installed)
        router.until("router ready url=http://127.0.0.1:30000 admin_url=http://127.0.0.1:30080")
        answers = [_run(c, installed) for c in commands() if c.startswith("curl")]
        assert '"chat.completion"' in answers[0]
        assert '"127.0.0.1:31000"' in answers[1]
        assert '"sessions":[{' in answers[2]
        assert "homeport_requests_total" in answers[3]
        exports = " && ".join(c for c in commands() if c.startswith("export"))
        said = _run(
            f"{exports} && curl -sf $OPENAI_BASE_URL/models $ANTHROPIC_BASE_URL/health", installed
        )
        assert "kimi-k2.6" in said
        assert router.interrupt() == 0
        assert replicas.interrupt() == 0
    finally:
        for process in (router, replicas):
            if process is not None:
                process.kill()

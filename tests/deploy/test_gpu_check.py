"""The check for a machine with one GPU: its commands, its questions, its mistakes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.doubles.engines import PYTHON
from tests.doubles.processes import emulate, end

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "gpu-check.sh"
CASES = ("plain", "dflash", "hicache", "dflash-hicache")
POOL = "32768"


def checked(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(SCRIPT), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def commands(said: str) -> dict[str, list[str]]:
    """The words of each case's command."""
    rows = (line.partition(": ") for line in said.splitlines())
    return {name: shlex.split(rest) for name, _, rest in rows if " -m sglang" in rest}


def test_a_dry_run_prints_the_commands_of_its_four_cases(tmp_path: Path) -> None:
    ran = checked("--dry-run", "--python", sys.executable, "--keep", str(tmp_path / "a folder"))
    assert ran.returncode == 0, ran.stderr
    told = commands(ran.stdout)
    assert tuple(told) == CASES
    for name, words in told.items():
        assert ("--speculative-algorithm" in words) is ("dflash" in name)
        assert ("--enable-hierarchical-cache" in words) is ("hicache" in name)
        assert words[words.index("--max-total-tokens") + 1] == POOL
        folder = Path(words[words.index("--model-path") + 1])
        assert json.loads((folder / "config.json").read_text())["kv_lora_rank"] == 512
    assert "its parser was not asked" in ran.stdout


@pytest.mark.engine
def test_sglangs_own_parser_and_checks_take_all_four() -> None:
    ran = checked("--dry-run", "--python", str(PYTHON))
    assert ran.returncode == 0, ran.stdout
    assert [line for line in ran.stdout.splitlines() if line.endswith(": accepted")] == [
        f"{name}: accepted" for name in CASES
    ]


@pytest.mark.parametrize(
    "words",
    [("--port", "0"), ("--port", "x"), ("--port",), ("--python", "/none/python"), ("--no-such",)],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: tuple[str, ...]) -> None:
    ran = checked(*words)
    assert ran.returncode == 2
    assert re.fullmatch(r"gpu-check: .+\n", ran.stderr)


def test_its_help_is_its_head() -> None:
    ran = checked("--help")
    assert ran.returncode == 0
    assert ran.stdout.startswith("Ten minutes on a machine with one GPU")
    assert "--dry-run" in ran.stdout


@pytest.fixture(params=[("plain", 0), ("dflash-hicache", 1_000_000)], ids=["device", "host"])
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A case, and the URL of an emulated replica that is as it should be in it."""
    case, host_tokens = request.param
    sizes = ("--capacity-tokens", POOL, "--host-tokens", str(host_tokens))
    running = emulate("--model", "gpu-check", *sizes, time_scale=500.0)
    try:
        running.wait_ready()
        yield case, running.url
    finally:
        end(running)


def asked(case: str, url: str, folder: Path) -> tuple[int, str]:
    command = [sys.executable, str(SCRIPT.with_name("gpu") / "ask.py"), url, case, str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def test_what_it_asks_holds_at_an_engine_that_is_as_it_should_be(
    engine: tuple[str, str], tmp_path: Path
) -> None:
    case, url = engine
    code, said = asked(case, url, tmp_path)
    assert code == 0, said
    assert "FAILS" not in said
    assert said.count("holds ") == (5 if "dflash" in case else 4)


def test_a_host_tier_that_is_missing_or_should_not_be_there_is_told(
    engine: tuple[str, str], tmp_path: Path
) -> None:
    case, url = engine
    other = "hicache" if case == "plain" else "plain"
    code, said = asked(other, url, tmp_path)
    assert code == 1
    assert said.count("FAILS") == 1, said

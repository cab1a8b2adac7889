"""``homeport sim explain`` as people run it: decisions on stdout, the rest on stderr, mistakes in one line."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from sim.cli.simulate import simulate
from tests.doubles.processes import COMMAND

if TYPE_CHECKING:
    from pathlib import Path

TINY = """
about = "a tiny fleet"
duration_s = 60
warmup_s = 10
policies = ["home", "least_inflight"]
[workload]
sessions_in_all = 12
[workload.mix]
n_sessions = 24
[[fleet]]
replicas = 3
"""


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    (tmp_path / "tiny.toml").write_text(TINY)
    return str(tmp_path / "tiny.toml")


def test_the_slowest_request_is_explained_with_what_then_happened(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(["explain", tiny, "--seed", "3", "--json", str(tmp_path / "out.json")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("tiny: 3 x b200-tp4-fp8; 12 sessions; ")
    title = re.fullmatch(
        r"at ([\d,.]+) s, request (\d+): (\S+) goes to (r\d+) \(\S+; policy home\)", shown[2]
    )
    assert title is not None, shown[2]
    assert shown[3].startswith("because ")
    assert any(line.endswith("<- chosen") for line in shown)
    at = next(n for n, line in enumerate(shown) if line.startswith("then: "))
    then = " ".join(line.strip() for line in shown[at:])
    held = r"([\d,.]+ s of it at the door until it was its turn, )?"
    assert re.match(
        rf"then: first token after [\d,.]+ s at {title[4]}, {held}[\d,]+ of [\d,]+ prompt tokens",
        then,
    )
    assert max(map(len, shown[2:])) <= 100
    made = json.loads((tmp_path / "out.json").read_text())
    [told] = made["decisions"]
    assert made["arguments"] == ["explain", tiny, "--seed", "3"]
    assert (told["decision"]["key"], str(told["request"])) == (title[3], title[2])
    assert told["then"]["replica"] == told["decision"]["chosen"] == title[4]
    # The same request by its name, in the same run: to the byte.
    words = ["explain", tiny, "--seed", "3", "--session", title[3], "--turn", title[2]]
    assert simulate(words) == 0
    assert capsys.readouterr().out.splitlines() == shown


def test_the_slowest_is_the_slowest_of_the_run(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, run = tmp_path / "out.json", tmp_path / "run.json"
    more = ["--policy", "least_inflight", "--slowest", "3", "--json", str(out)]
    assert simulate(["explain", tiny, *more]) == 0
    assert simulate(["run", tiny, "--policies", "least_inflight", "--json", str(run)]) == 0
    assert "policy least_inflight" in capsys.readouterr().out
    waits_s = [row["then"]["ttft_s"] for row in json.loads(out.read_text())["decisions"]]
    assert waits_s == sorted(waits_s, reverse=True)
    assert len(waits_s) == 3
    figures = json.loads(run.read_text())["policies"]["least_inflight"]
    assert waits_s[-1] <= waits_s[0]
    assert figures["ttft_s"]["p99"] <= waits_s[0] + 1e-9


def test_equal_commands_print_equal_bytes(tiny: str) -> None:
    def printed() -> bytes:
        words = [*COMMAND, "sim", "explain", tiny, "--at", "20", "--rows", "2"]
        return subprocess.run(words, capture_output=True, timeout=50, check=True).stdout

    one = printed()
    assert printed() == one
    assert re.search(rb"^at 2\d\.\d s, request ", one, re.MULTILINE)
    assert b"and 1 more replicas" in one


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--session", "x"], "--session: say which one with --turn N or --at SECONDS"),
        (["--turn", "3"], "--turn: say of which session with --session KEY"),
        (["--slowest", "2", "--at", "3"], "--slowest: picks requests by itself"),
        (["--policy", "nope"], "--policy nope: not known; one of dynamo_kv, home,"),
        (["--session", "x", "--turn", "2"], "--session x: no request of this run has that key; there are "),
        (["--at", "5000"], "--at 5000: nothing that fits is decided from then on"),
        (["--json", "/nonexistent/x"], "--json /nonexistent/x: cannot be written"),
        (["--slowest", "0"], "--slowest"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_2(
    tiny: str, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert simulate(["explain", tiny, *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err.splitlines()[-1]

"""``homeport sim`` with recorded traffic: every format plays, and damage is one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sim.cli.simulate import simulate
from tests.unit.agent_workload.trace_examples import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLAIN = """
duration_s = 60
warmup_s = 10
policies = ["home", "round_robin"]
[workload]
sessions = 3
[[fleet]]
replicas = 2
"""


@pytest.fixture
def plain(tmp_path: Path) -> str:
    (tmp_path / "plain.toml").write_text(PLAIN)
    return str(tmp_path / "plain.toml")


def test_every_recorded_format_can_be_played(plain: str, tmp_path: Path) -> None:
    for name, (file_name, content) in EXAMPLES.items():
        trace = tmp_path / f"{name}-{file_name}"
        trace.write_bytes(content)
        assert simulate(["run", plain, "--policies", "home", "--trace", str(trace)]) == 0


@pytest.mark.parametrize(
    ("damage", "jobs"),
    [
        (lambda content: content.replace(b'"input_length": ', b'"input_length": -'), "2"),
        (lambda content: content[: len(content) // 2], "1"),
    ],
    ids=["negative", "cut"],
)
def test_damaged_traffic_is_one_line_and_2(
    plain: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[bytes], bytes],
    jobs: str,
) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_bytes(damage(EXAMPLES["mooncake"][1]))
    assert simulate(["run", plain, "--trace", str(trace), "--jobs", jobs]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "t.jsonl" in line


def test_an_open_loop_of_traffic_without_a_clock(
    plain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / EXAMPLES["weka"][0]
    trace.write_bytes(EXAMPLES["weka"][1])
    assert simulate(["run", plain, "--trace", str(trace), "--set", "pace=open"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no common clock" in line

"""``homeport trace stats``: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sim.cli.traces import trace
from tests.unit.agent_workload.trace_examples import EXAMPLES, WEKA, weka, weka_row

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    (tmp_path / "a.json").write_bytes(WEKA)
    (tmp_path / "b.json").write_bytes(weka([weka_row(0, 640, list(range(10)))], id="b"))
    return tmp_path


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_format_has_a_table_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    file = tmp_path / EXAMPLES[name][0]
    file.write_bytes(EXAMPLES[name][1])
    assert trace(["stats", str(file), "--json", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{file.name}: {name}, ")
    assert printed.err == ""
    figures = json.loads((tmp_path / "out").read_text())
    assert figures["format"] == name
    assert figures["requests"] > 0


def test_options_say_what_is_left(sessions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["stats", str(sessions), "--json", str(sessions / "out")]
    for options, requests, cut in (
        ([], 7, 0),
        (["--context-max", "500"], 7, 1),
        (["--context-max", "500", "--drop-long"], 6, 0),
        (["--turns-min", "2", "--gap-max", "inf"], 6, 0),
    ):
        assert trace([*words, *options]) == 0
        figures = json.loads((sessions / "out").read_text())
        assert (figures["requests"], figures["n_cut"]) == (requests, cut)
    assert trace([*words, "--pool", "128", "--pool", "640", "--share-heads", "--lanes", "1"]) == 0
    figures = json.loads((sessions / "out").read_text())
    assert [pool["tokens"] for pool in figures["caches"]["pools"]] == [128, 640]
    assert figures["caches"]["alike_sessions"] == 1
    assert "(1 sessions at a time)" in capsys.readouterr().out


def test_mistakes_are_one_line_and_two(sessions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = sessions / "deep"
    broken.mkdir()
    (broken / "c.json").write_bytes(WEKA.replace(b'"out": 5', b'"out": -5', 1))
    for words, said in (
        ([str(sessions / "absent")], "no such file or folder"),
        ([str(broken)], "c.json: requests[0].out: Expected `int` >= 0, got -5"),
        ([str(sessions / "a.json"), "--format", "wika"], "no format 'wika'; there are: weka"),
        ([str(sessions / "a.json"), "--format", "azure"], "line 1: expected TIMESTAMP,"),
        ([str(sessions / "a.json"), "--gap-max", "nan"], "nan is not 0 or more"),
        ([str(sessions / "a.json"), "--context-max", "0"], "--context-max"),
        ([str(sessions / "a.json"), "--turns-min", "99"], "no session is left"),
        ([str(sessions / "a.json"), "--json", str(sessions / "no" / "out")], "No such file"),
    ):
        assert trace(["stats", *words]) == 2
        errors = capsys.readouterr().err
        assert said in errors
        assert errors.startswith("homeport trace: ")
        assert errors.count("\n") == 1
    assert trace([]) == 2
    assert trace(["status"]) == 2


def test_help_and_one_run_as_a_process(sessions: Path) -> None:
    command = [sys.executable, "-m", "router.cli", "trace", "stats"]
    done = subprocess.run([*command, str(sessions)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "held by an infinite cache" in done.stdout
    helped = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False)
    assert helped.returncode == 0
    assert "--context-max" in helped.stdout

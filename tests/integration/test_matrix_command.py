"""``homeport sim matrix`` as a process on two replicas: killed, gone on with, and what it says."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from sim.cli.simulate import simulate
from sim.jobs.keeping import reached
from sim.jobs.running import REFERENCE, Job, reference_by, run_job
from sim.scenario.finding import draft_named
from tests.doubles.processes import COMMAND
from tests.unit.agent_workload.trace_examples import EXAMPLES

if TYPE_CHECKING:
    from pathlib import Path

TINY = ["matrix", "--replicas", "2", "--seeds", "2", "--duration-s", "40", "--warmup-s", "10"]
TINY += ["--set", "workload.mix.n_sessions=12", "--only", "load=50,90,130"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_it_goes_on_and_says_what_it_would_have_said(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    words = [*COMMAND, "sim", *TINY, "--only", "order=fcfs", "--json", str(out), "--jobs", "2"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as begun:
        assert begun.stderr is not None
        for line in begun.stderr:
            if line.startswith(b"[20/"):
                begun.kill()
                break
    assert not out.exists()
    kept = len(list((tmp_path / "out.json.runs").glob("*.json")))
    assert kept >= 20
    again = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert again.returncode in (0, 1), again.stderr
    n_all = len(list((tmp_path / "out.json.runs").glob("*.json")))
    assert again.stderr.count("requests in") == n_all - kept
    assert re.search(r"about \d+ min left", again.stderr)
    assert "the part on recorded traffic is left out" in again.stderr
    assert re.search(
        r"^generator, fcfs: saturated by [\d.]+ sessions a replica$", again.stderr, re.MULTILINE
    )
    made = json.loads(out.read_text())
    (part,) = made["parts"]
    assert again.returncode == (not part["is_met"])
    assert [point["load"] for point in part["points"]] == [0.5, 0.9, 1.3]
    assert all(
        len(runs) == 2 and len(point["runs"]) == 6
        for point in part["points"]
        for runs in point["runs"].values()
    )
    assert len(part["baselines"]) == 13
    # From what is kept alone: the same to the byte, and nothing runs.
    whole = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert whole.stdout == again.stdout
    assert "requests in" not in whole.stderr
    assert json.loads(out.read_text()) == made


@pytest.mark.slow
def test_recorded_traffic_has_parts_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "monday.rec"
    trace.write_bytes(EXAMPLES["recording"][1])
    # Slow engines: what was recorded is small.
    words = [*TINY[:-4], "--set", "fleet.speed=0.02", "--only", "load=90,130"]
    words += ["--trace", str(trace), "--only", "workload=trace", "--only", "order=fcfs"]
    words += ["--jobs", "1", "--resume", str(tmp_path / "kept"), "--seeds", "1"]
    assert simulate(words) in (0, 1)
    printed = capsys.readouterr()
    assert printed.out.startswith("2 replicas, trace, fcfs: 100 % is ")
    assert "left out" not in printed.out + printed.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "hoem"], "--policy hoem"),
        (["--only", "size=17"], "--only 'size=17': there are 16, 64, 200"),
        (["--only", "workload=trace"], "recorded traffic needs --trace"),
        (["--trace", "/nowhere", "--only", "workload=trace"], "/nowhere"),
        (["--set", "workload.sesions=3"], "sesions"),
        (["--warmup-s", "900"], "warmup_s"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = ["--resume", str(tmp_path / "kept"), "--jobs", "1"]
    assert simulate(["matrix", *kept, *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err.splitlines()[-1]


def test_a_run_is_known_by_what_it_can_reach() -> None:
    home, sticky, reference = (reached(name) for name in ("home", "sticky", "reference"))
    assert home - reference >= {"router.policy.home"}
    assert "router.policy.home" not in sticky
    assert "router.policy.baselines" in sticky
    for needed in (
        "router.core",
        "sim.engine.scheduler",
        "hashing.chain",
        "replica.hardware.steps",
    ):
        assert needed in reference
    assert not {
        name for name in home if name.startswith(("router.edge", "router.control", "sim.page"))
    }


def test_the_reference_by_its_best_rule_is_the_reference() -> None:
    draft = draft_named("steady")
    for key, value in {"replicas": 2, "duration_s": 40, "warmup_s": 10, "sessions": 30}.items():
        draft = draft.with_value(key, value, by=key)
    scenario = draft.scenario()
    whole = run_job(Job(scenario, REFERENCE)).figures
    by_rule = run_job(Job(scenario, reference_by(whole["rule"]))).figures
    measured = ("wall_s", "load_s", "requests_per_wall_s")
    assert {**by_rule, **dict.fromkeys(measured)} == {**whole, **dict.fromkeys(measured)}

"""``homeport sim``: results on stdout, the rest on stderr, one line for what is wrong, and files."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sim.cli.asking import Given, asked_of
from sim.cli.simulate import simulate
from sim.jobs.errors import RunError
from sim.jobs.keeping import digest_of
from sim.jobs.pool import run_all
from sim.jobs.running import REFERENCE, Job
from sim.scenario.draft import drafted
from sim.scenario.finding import shipped
from tests.doubles.processes import COMMAND
from tests.unit.agent_workload.trace_examples import EXAMPLES

TINY = """
about = "a tiny fleet"
duration_s = 60
warmup_s = 10
policies = ["home", "round_robin"]
[workload]
sessions_in_all = 3
{mix}
[[fleet]]
replicas = 2
[[variant]]
name = "two"
set = { "routers.count" = 2 }
"""


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    (tmp_path / "tiny.toml").write_text(TINY.replace("{mix}", "[workload.mix]\nn_sessions = 12"))
    return str(tmp_path / "tiny.toml")


@pytest.fixture
def plain(tmp_path: Path) -> str:
    """The same without anything that is for fitted traffic."""
    (tmp_path / "plain.toml").write_text(TINY.replace("{mix}", ""))
    return str(tmp_path / "plain.toml")


def read(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text())
    assert isinstance(found, dict)
    return found


def test_a_run_prints_a_table_and_writes_all_figures(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--json", str(tmp_path / "out.json"), "--html", str(tmp_path / "out.html")]
    assert simulate(["run", tiny, "--jobs", "1", *files]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].startswith("tiny: 2 x b200-tp4-fp8; 3 sessions; fitted traffic; 60 s, ")
    assert [line.split()[0] for line in lines[4:6]] == ["home", "round_robin"]
    assert max(map(len, lines)) <= 100
    assert re.search(r"\[2/2\] tiny, round_robin, seed 1: [\d,]+ requests in [\d.]+ s", printed.err)
    made = read(tmp_path / "out.json")
    assert (made["command"], made["seed"], made["reference"]) == ("run", 1, None)
    assert made["arguments"] == ["run", tiny]
    assert made["scenario"]["fleet"] == [
        {"profile": "b200-tp4-fp8", "replicas": 2, "draft": True, "speed": 1.0}
    ]
    assert list(made["policies"]) == ["home", "round_robin"]
    figures = made["policies"]["home"]
    assert figures["requests"] > 0
    assert figures["errors"] == 0
    assert figures["wall_s"] > 0.0 <= figures["load_s"]
    assert "<html" in (tmp_path / "out.html").read_text()[:500]


def test_equal_commands_print_equal_bytes(tiny: str) -> None:
    def printed(*more: str) -> bytes:
        words = [*COMMAND, "sim", "run", tiny, *more]
        return subprocess.run(words, capture_output=True, timeout=50, check=True).stdout

    one = printed("--seed", "4", "--jobs", "1")
    assert printed("--seed", "4", "--jobs", "2") == one
    assert b"seed 4\n" in one


def test_compare_has_the_reference_last_and_ratios(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", tiny, "--policies", "home", "--jobs", "1", "--variant", "two"]
    assert simulate([*words, "--json", str(tmp_path / "out.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:1] for line in lines[4:9]] == [
        *(["home"], ["reference"], [], ["of"], ["home"])
    ]
    assert re.search(r"\d\.\d\dx", lines[8])
    made = read(tmp_path / "out.json")
    assert made["reference"]["requests"] > 0
    assert made["scenario"]["routers"]["count"] == 2


def test_a_sweep_goes_on_where_it_was(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    words = ["sweep", tiny, "--over", "sessions=2,3", "--over", "order=fcfs,lpm", "--jobs", "1"]
    words += ["--policies", "home", "--json", str(out)]
    assert simulate(words) == 0
    first = capsys.readouterr()
    points = read(out)["points"]
    assert [point["at"] for point in points] == [
        {"sessions": n, "order": order} for n in (2, 3) for order in ("fcfs", "lpm")
    ]
    kept = sorted((tmp_path / "out.json.runs").iterdir())
    assert len(kept) == 4
    kept[0].unlink()
    kept[1].write_text("{")
    kept[2].write_text('{"figures": 3}')
    assert simulate(words) == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert "1 of 4 runs are in " in again.err
    assert again.err.count("requests in") == 3
    assert simulate([*words, "--seed", "2"]) == 0
    assert "are in" not in capsys.readouterr().err


def test_what_a_run_follows_from_is_in_its_digest(plain: str, tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_bytes(EXAMPLES["mooncake"][1])
    draft = drafted(Path(plain))

    def digest(**values: object) -> str:
        policy = str(values.pop("policy", "home"))
        changed = draft
        for key, value in values.items():
            changed = changed.with_value(key, value, by=key)
        return digest_of(Job(changed.scenario(), policy))

    digests = [
        digest(),
        digest(policy="sticky"),
        digest(seed=2),
        digest(sessions=4),
        digest(trace=str(trace)),
    ]
    trace.write_bytes(EXAMPLES["mooncake"][1] + b"\n")
    digests.append(digest(trace=str(trace)))
    assert len(set(digests)) == len(digests)
    assert digest() == digests[0]


def test_runs_end_up_the_same_in_processes(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", tiny, "--over", "sessions=2,3", "--resume", str(tmp_path / "kept" / "here")]
    assert simulate([*words, "--jobs", "2"]) == 0
    parallel = capsys.readouterr().out
    assert simulate([*words[:-2], "--jobs", "1"]) == 0
    assert capsys.readouterr().out == parallel
    assert len(list((tmp_path / "kept" / "here").iterdir())) == 4


def test_size_finds_the_smallest_fleet(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "size",
        tiny,
        "--policies",
        "home",
        "--set",
        "sessions_in_all=40",
        "--set",
        "duration_s=200",
    ]
    words += ["--set", "warmup_s=60", "--ttft-p90", "20", "--json", str(tmp_path / "out.json")]
    assert simulate(words) == 0
    verdict = capsys.readouterr().out.splitlines()[-1]
    found = re.fullmatch(r"home: (\d+) replicas are enough(; with (\d+), TTFT p90 .+)?", verdict)
    assert found is not None, verdict
    points = {p["at"]["replicas"]: p["failures"] for p in read(tmp_path / "out.json")["points"]}
    assert points[int(found[1])] == []
    if found[3]:
        assert int(found[3]) == int(found[1]) - 1
        assert points[int(found[3])]
    assert simulate([*words, "--replicas-max", "1", "--ttft-p90", "0.001"]) == 0
    assert "home: not even 1 replicas: TTFT p90 " in capsys.readouterr().out


CHANGES = [
    (["--set", "replicas=0"], "--set replicas=0: 0 is not allowed: a whole number, 1 to 4,096"),
    (["--set", "replcas=2"], "'replcas' is not known; did you mean 'replicas'?"),
    (["--set", "replicas"], "--set 'replicas': not KEY=VALUE"),
    (["--set", "warmup_s=60"], "--set warmup_s=60: 60.0 is not allowed: less than duration_s, 60"),
    (["--policies", "hom"], "--policies: 'hom' is not known; did you mean 'home'? there are: "),
    (["--policies", ""], "--policies: '' is not known"),
    (["--variant", "three"], "--variant three: 'three' is not known; the variants are: two"),
    (["--seed", "x"], "'--seed': Input should be a valid integer"),
    (["--seed", "-1"], "'--seed': "),
    (["--set", "pace=open"], "without recorded traffic: give --trace PATH"),
    (
        ["--trace", "t.jsonl"],
        "tiny.toml: workload.mix: is for fitted traffic, and --trace t.jsonl is recorded: give one",
    ),
    (
        ["--trace", "t.jsonl", "--set", "workload.mix.heads=9"],
        "--set workload.mix.heads=9: is for fitted traffic, and --trace t.jsonl is recorded",
    ),
    (
        ["--set", "workload.mix.heads=0"],
        "--set workload.mix.heads=0: heads of 0.0 lies outside 1 to",
    ),
    (["--json", "no/such/folder.json"], "--json no/such/folder.json: cannot be written: No such"),
    (["--html", "/"], "--html /: cannot be written: Is a directory"),
    (["--bogus"], "No such option: --bogus"),
    (["more"], "more"),
]


@pytest.mark.parametrize(("options", "said"), CHANGES)
def test_a_mistake_is_one_line_and_2(
    tiny: str, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    for command in (
        ["run", tiny, "--jobs", "1"],
        ["compare", tiny, "--jobs", "1"],
        ["sweep", tiny, "--jobs", "1", "--over", "sessions=1"],
        ["size", tiny, "--ttft-p99", "1"],
    ):
        assert simulate([*command, *options]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        (line,) = printed.err.splitlines()
        assert line.startswith("homeport sim: ")
        assert said in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "stedy"], "no scenario 'stedy'; did you mean 'steady'? there are: "),
        (["show", "stedy"], "did you mean 'steady'?"),
        (["run", "steady", "--trace", "no.jsonl"], "no.jsonl: no such file or folder"),
        (
            ["run", "steady", "--trace", "t", "--set", "workload.preset=fast-tools"],
            "--set workload.preset=fast-tools: is for fitted traffic, and --trace t is recorded",
        ),
        (["run", "no/such.toml"], "no/such.toml: cannot be read: No such file or directory"),
        (["run"], "Missing argument 'SCENARIO'"),
        (["rn", "steady"], "No such command 'rn'"),
        (["sweep", "steady"], "steady.toml: no [sweep] in it: say --over KEY=VALUE,VALUE"),
        (["sweep", "steady", "--over", "sessions"], "--over 'sessions': not KEY=VALUE,VALUE"),
        (["sweep", "steady", "--over", "sessions=0"], "--over sessions=0: 0 is not allowed"),
        (["sweep", "steady", "--over", "x=1,2"], "--over x=1: 'x' is not known"),
        (
            ["sweep", "steady", "--over", "seed=1", "--resume", "/dev/null/x"],
            "--resume /dev/null/x",
        ),
        (["size", "overload"], "overload.toml: no SLO: say --ttft-p99 SECONDS"),
        (
            ["size", "steady", "--ttft-p99", "-1"],
            "--ttft-p99 -1: -1.0 is not allowed: a number, over",
        ),
        (["size", "steady", "--ttft-p99", "nan"], "--ttft-p99 nan: nan is not allowed"),
    ],
)
def test_other_mistakes(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert simulate(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_shipped_scenarios_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("  ")] == list(shipped())
    assert max(map(len, lines)) <= 100
    assert simulate(["show", "crash"]) == 0
    assert capsys.readouterr().out == shipped()["crash"].read_text()
    assert simulate(["keys"]) == 0
    assert "[[fault]]" in capsys.readouterr().out


@pytest.mark.parametrize("name", shipped())
def test_shipped_scenarios_run_briefly(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    draft = drafted(shipped()[name])
    scenario = draft.scenario()
    words = ["--set", "sessions_in_all=40"] if scenario.n_replicas > 1 else []
    words += [
        "--set",
        "duration_s=100",
        "--set",
        "warmup_s=30",
        "--set",
        "workload.mix.n_sessions=30",
    ]
    for number, fault in enumerate(scenario.faults, 1):
        words += ["--set", f"fault.{number}.at_s={20 + number * 20}"]
        if fault.kind in ("crash", "scale-up"):
            words += ["--set", f"fault.{number}.startup_s=10"]
    assert simulate(["run", name, *words, "--jobs", "1"]) == 0
    rows = capsys.readouterr().out.splitlines()[4:]
    assert [row.split()[0] for row in rows[: len(scenario.policies)]] == list(scenario.policies)


def test_help_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(["--help"]) == 0
    listed = capsys.readouterr().out
    for command in ("run", "compare", "sweep", "size", "explain", "list", "show", "keys"):
        assert re.search(rf"^  {command} +[A-Z].+\.$", listed, re.MULTILINE), command
        assert simulate([command, "--help"]) == 0
        assert f"Usage: homeport sim {command} " in capsys.readouterr().out


@pytest.mark.parametrize("n_processes", [1, 2])
def test_a_run_that_fails_says_which_and_how_to_repeat_it(tiny: str, n_processes: int) -> None:
    scenario = drafted(Path(tiny)).scenario()
    jobs = [Job(scenario, name, f"again {name}") for name in ("none", "neither")]
    with pytest.raises(RunError) as caught:
        run_all(jobs, n_processes=n_processes, done=lambda _number, _done: None)
    name = caught.value.repeat.removeprefix("again ")
    assert str(caught.value).startswith(f"tiny, {name}, seed 1: ConfigError: policy: {name!r} is ")
    assert not caught.value.is_input


def test_a_point_of_a_sweep_can_be_run_again(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = asked_of(Given(tiny, seed=3, sets=["duration_s=50"], jobs=1), "run")
    for policy, command in (("sticky", "run"), (REFERENCE, "compare")):
        words = shlex.split(asked.repeat(policy, {"variant": "two", "order": "lpm"}))
        assert words[:3] == ["homeport", "sim", command]
        assert simulate([*words[2:], "--jobs", "1"]) == 0
        assert "; 50 s, the first 10 not counted; seed 3" in capsys.readouterr().out


def test_a_result_that_cannot_be_written_is_printed_all_the_same(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", tiny, "--jobs", "1", "--policies", "home", "--json", "/dev/full"]
    assert simulate(words) == 2
    printed = capsys.readouterr()
    assert "home" in printed.out
    assert "homeport sim: --json /dev/full: cannot be written: No space left" in printed.err


def test_an_interrupted_sweep_goes_on(tiny: str, tmp_path: Path) -> None:
    words = [*COMMAND, "sim", "sweep", tiny, "--over", "sessions=2,3,4,5,6,7,8", "--jobs", "2"]
    words += ["--resume", str(tmp_path / "kept"), "--set", "duration_s=400"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as begun:
        assert begun.stderr is not None
        for line in begun.stderr:
            if line.startswith(b"[1/14]"):
                begun.send_signal(signal.SIGINT)
                break
        said = begun.stderr.read().decode()
    assert begun.returncode == 130
    assert said.splitlines()[-1] == "homeport sim: interrupted"
    assert "Traceback" not in said
    again = subprocess.run(words, capture_output=True, text=True, timeout=50, check=True)
    assert re.search(r"^\d+ of 14 runs are in ", again.stderr, re.MULTILINE)
    assert len(again.stdout.splitlines()) == 18


def test_it_runs_as_a_process() -> None:
    words = [*COMMAND, "sim", "list"]
    listed = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
    assert "steady\n" in listed.stdout
    assert listed.stderr == ""

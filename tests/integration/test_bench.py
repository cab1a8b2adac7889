"""The measuring tools themselves: one short round gives a result that can be read back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bench.__main__ import main
from bench.relay import order

if TYPE_CHECKING:
    from pathlib import Path


def test_a_short_round_gives_a_result_and_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.json"
    words = ["--case", "small", "--target", "direct", "--target", "homeport", "--rounds", "1"]
    assert main([*words, "--seconds", "0.3", "--warmup", "0.1", "--json", str(file)]) == 0
    run = json.loads(file.read_bytes())
    assert run["kind"] == "relay"
    results = {sample["target"]: sample["result"] for sample in run["samples"]}
    assert list(results) == ["direct", "homeport"]
    assert all(result["requests"] > 0 and result["alone"]["n"] > 0 for result in results.values())
    assert results["direct"]["router_cpu_s"] == 0
    assert results["homeport"]["router_cpu_s"] > 0
    capsys.readouterr()
    assert main(["report", str(file)]) == 0
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in table[2:]] == ["direct", "homeport"]
    assert len({line.count("|") for line in table}) == 1


def test_an_unknown_target_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--target", "apache"]) == 2
    assert "apache" in capsys.readouterr().err


@pytest.mark.slow
def test_memory_counts_what_each_kind_of_client_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "memory.json"
    words = ["memory", "--target", "homeport", "--idle", "20", "--streams", "5"]
    assert main([*words, "--json", str(file)]) == 0
    rows = json.loads(file.read_bytes())["rows"]
    assert [(row["target"], row["kind"], row["count"]) for row in rows] == [
        ("homeport", "idle", 20),
        ("homeport", "streams", 5),
    ]
    assert all(row["after_kib"] >= row["before_kib"] > 10_000 for row in rows)
    capsys.readouterr()
    assert main(["report", str(file)]) == 0
    assert "| homeport | streams | 5 |" in capsys.readouterr().out


def test_a_file_that_is_no_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.json"
    file.write_text("{}")
    assert main(["report", str(file)]) == 2
    assert str(file) in capsys.readouterr().err


@pytest.mark.slow
def test_facts_measure_both_dialects_before_both_fleets(tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    assert main(["facts", "--iterations", "5", "--json", str(file)]) == 0
    rows = json.loads(file.read_bytes())["rows"]
    assert [(row["dialect"], row["replicas"]) for row in rows] == [
        ("chat", 4),
        ("chat", 64),
        ("messages", 4),
        ("messages", 64),
        ("responses", 4),
        ("responses", 64),
    ]
    assert all(row["total_p50_us"] > 0 for row in rows)


@pytest.mark.slow
def test_observing_counts_questions_and_what_they_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "observe.json"
    words = ["observe", "--replicas", "3", "--rounds", "1", "--seconds", "2.5"]
    assert main([*words, "--json", str(file)]) == 0
    [row] = json.loads(file.read_bytes())["rounds"]
    assert row["cpu_s"] > 0
    assert row["asked"]["ready"] >= 3
    assert row["asked"]["loads"] >= 3
    assert row["unanswered"] == 0
    capsys.readouterr()
    assert main(["report", str(file)]) == 0
    assert "| 3 replicas |" in capsys.readouterr().out


def test_every_target_comes_first_in_some_round() -> None:
    names = ["a", "b", "c"]
    orders = [order(names, number) for number in range(6)]
    assert {found[0] for found in orders} == set(names)
    assert all(sorted(found) == names for found in orders)

"""The document of all figures: what is in it twice alike, and the command that gives it again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from sim.cli.simulate import simulate

if TYPE_CHECKING:
    from pathlib import Path

TINY = """
duration_s = 60
warmup_s = 10
policies = ["home", "round_robin"]
[workload]
sessions = 3
[workload.mix]
n_sessions = 12
[[fleet]]
replicas = 2
[[variant]]
name = "two"
set = { "routers.count" = 2 }
"""


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    (tmp_path / "tiny.toml").write_text(TINY)
    return str(tmp_path / "tiny.toml")


def read(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text())
    assert isinstance(found, dict)
    return found


def test_figures_of_one_seed_differ_in_wall_time_alone(tiny: str, tmp_path: Path) -> None:
    def figures(jobs: str) -> object:
        path = tmp_path / f"{jobs}.json"
        assert simulate(["compare", tiny, "--seed", "4", "--jobs", jobs, "--json", str(path)]) == 0
        return without_wall(read(path))

    assert figures("1") == figures("2")


def without_wall(value: object) -> object:
    """A document without what the clock on the wall has to do with."""
    if isinstance(value, dict):
        wall = {"wall_s", "load_s", "requests_per_wall_s"}
        return [(key, without_wall(part)) for key, part in value.items() if key not in wall]
    return [without_wall(part) for part in value] if isinstance(value, list) else value


def test_the_arguments_of_a_command_give_it_again(tiny: str, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    over = ["--over", "sessions=2,3", "--over", "policies=home,sticky", "--reference"]
    words = ["sweep", tiny, "--variant", "two", "--set", "seed=3", *over]
    assert simulate([*words, "--jobs", "1", "--json", str(path)]) == 0
    made = read(path)
    assert made["arguments"] == words
    assert simulate([*made["arguments"], "--jobs", "1", "--json", str(path)]) == 0
    assert read(path)["points"] == made["points"]
    limits = ["--replicas-max", "2", "--policies", "home", "--ttft-p50", "900"]
    assert simulate(["size", tiny, *limits, "--seed", "2", "--json", str(path)]) == 0
    assert read(path)["arguments"] == ["size", tiny, "--seed", "2", *limits]

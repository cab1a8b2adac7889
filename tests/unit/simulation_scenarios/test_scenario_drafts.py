"""Scenarios changed from outside: keys by path or short name, variants, points of sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sim.scenario.draft import ALIASES, PATHS, Draft, axis_of, value_of
from sim.scenario.errors import ScenarioError
from sim.scenario.finding import draft_named, located

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def draft(tmp_path: Path) -> Draft:
    document: dict[str, object] = {
        "fleet": [{"replicas": 2}],
        "fault": [{"kind": "flush", "at_s": 5, "replicas": [0]}],
    }
    return Draft(document, "own", "own.toml", tmp_path)


@pytest.fixture
def two_groups(tmp_path: Path) -> Draft:
    return Draft({"fleet": [{"replicas": 2}, {}]}, "own", "own.toml", tmp_path)


def test_keys_are_set_by_path_and_by_short_name(draft: Draft) -> None:
    for key, value in (
        ("seed", 5),
        ("replicas", 4),
        ("fleet.profile", "b300-tp4-fp8"),
        ("fleet.1.capacity_tokens", 640),
        ("fleet[1].speed", 2),
        ("order", "lpm"),
        ("routers.count", 3),
        ("fault.1.at_s", 7),
        ("workload.mix.thick_ratio", 0.5),
        ("ttft_p99_s", 3),
    ):
        draft = draft.with_value(key, value, by=f"--set {key}={value}")
    scenario = draft.scenario()
    (group,) = scenario.fleet
    assert (scenario.seed, scenario.engine.order, scenario.routers.count) == (5, "lpm", 3)
    assert (group.replicas, group.profile, group.capacity_tokens) == (4, "b300-tp4-fp8", 640)
    assert (group.speed, scenario.faults[0].at_s) == (2.0, 7.0)
    assert scenario.workload.mix == {"thick_ratio": 0.5}
    assert scenario.slo.ttft_p99_s == 3.0


def test_the_draft_it_came_from_stays(draft: Draft) -> None:
    draft.with_value("replicas", 9, by="x")
    assert draft.scenario().n_replicas == 2


def test_each_way_of_giving_sessions_replaces_the_other(draft: Draft) -> None:
    draft = draft.with_value("sessions_in_all", 5, by="x")
    assert draft.scenario().workload.sessions_in_all == 5
    draft = draft.with_value("sessions", 7, by="x")
    assert draft.scenario().workload.sessions_in_all is None
    assert draft.scenario().workload.sessions_per_replica == 7
    draft = draft.with_value("sessions_in_all", 5, by="x")
    assert draft.scenario().workload.sessions_in_all == 5


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("replicas", 0, "--set K: 0 is not allowed: a whole number, 1"),
        ("fleet.replicas", "many", "--set K: 'many' is not allowed"),
        ("replica", 1, "--set K: 'replica' is not known; did you mean 'replicas'?"),
        ("workload.sesions", 1, "did you mean 'workload.sessions'?"),
        ("fleet.3.replicas", 1, "--set K: fleet.3 is none of 1 to 1"),
        ("fleet.0.replicas", 1, "--set K: fleet.0 is none of 1 to 1"),
        ("fleet.x.replicas", 1, "--set K: fleet.x is none of"),
        ("fault.2.at_s", 1, "fault.2 is none of 1 to 1"),
        ("at_s", 1, "'at_s' is not known"),
        ("workload.mix.thick", 1, "--set K: 'thick' is not known"),
        ("engine.order", "lifo", "--set K: 'lifo' is not known"),
        ("warmup_s", 9_999, "--set K: 9999.0 is not allowed: less than duration_s"),
        ("workload", 3, "'workload' is not known"),
        ("", 3, "--set K: '' is not known"),
    ],
)
def test_a_mistake_names_the_flag(draft: Draft, key: str, value: object, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        draft.with_value(key, value, by="--set K").scenario()
    assert said in str(caught.value)


def test_of_several_groups_one_must_be_named(two_groups: Draft) -> None:
    with pytest.raises(ScenarioError, match=r"there are 2 \[\[fleet\]\]: say fleet\.1\."):
        two_groups.with_value("replicas", 3, by="--set x")
    changed = two_groups.with_value("fleet.2.replicas", 3, by="--set x").scenario()
    assert [group.replicas for group in changed.fleet] == [2, 3]


def test_values_are_toml_or_the_text_itself() -> None:
    assert [value_of(text) for text in ("3", "0.5", "true", "[1, 2]", '"a"', "a-b", "1\n2")] == [
        *(3, 0.5, True, [1, 2], "a", "a-b", "1\n2")
    ]
    assert axis_of("order=fcfs,lpm") == ("order", ["fcfs", "lpm"])
    assert axis_of("x = [1, 2], 3") == ("x", [[1, 2], 3])
    for wrong in ("order", "order=", "=3", "order=a,,b"):
        with pytest.raises(ScenarioError, match="not KEY=VALUE,VALUE"):
            axis_of(wrong)


def test_points_are_all_combinations(draft: Draft) -> None:
    points = draft.points({"sessions": [3, 5], "order": ["fcfs", "lpm"]}, by="--over")
    assert [
        (p.scenario.workload.sessions_per_replica, p.scenario.engine.order) for p in points
    ] == [*((3, "fcfs"), (3, "lpm"), (5, "fcfs"), (5, "lpm"))]
    assert points[1].at == {"sessions": 3, "order": "lpm"}
    with pytest.raises(ScenarioError, match="--over sessions=0: 0 is not allowed"):
        draft.points({"sessions": [1, 0]}, by="--over")
    with pytest.raises(ScenarioError, match="--over: 10,000 points; at most 2,000"):
        draft.points({"sessions": list(range(100)), "replicas": list(range(100))}, by="--over")


def test_the_published_ladder_is_five_variants() -> None:
    draft = draft_named("published-replica")
    axes = draft.axes()
    assert axes["variant"] == ["bf16", "dflash-5.00", "dflash-5.84", "fp8-kv", "host-tier"]
    groups = [draft.varied(str(name), by="x").scenario().fleet[0] for name in axes["variant"]]
    assert [group.accept_length for group in groups] == [None, 5.0, 5.84, 5.84, 5.84]
    assert [group.has_draft for group in groups] == [False, True, True, True, True]
    assert [group.host_tokens for group in groups] == [0, 0, 0, 0, 1_900_000]
    assert list(draft.axes(has_variants=False)) == ["sessions"]
    with pytest.raises(ScenarioError, match="--variant fp8: 'fp8' is not known; did you mean 'fp8"):
        draft.varied("fp8", by="--variant fp8")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"variant": [{"name": "a"}]}, "[[variant]][1]: {'name': 'a'} is not allowed: tables"),
        ({"variant": [{"name": "a", "set": {}}, {"name": "a", "set": {}}]}, "[[variant]][2]: "),
        ({"variant": [{"name": "a", "set": {}, "more": 1}]}, "[[variant]][1]: "),
        ({"variant": 3}, "[[variant]][1]: 3 is not allowed"),
        ({"sweep": {"sessions": 3}}, "sweep.sessions: 3 is not allowed: a list of values"),
        ({"sweep": {"sessions": []}}, "sweep.sessions: [] is not allowed"),
        ({"sweep": 3}, "sweep: 3 is not allowed: a table [sweep]"),
    ],
)
def test_variants_and_sweeps_may_be_wrong(
    tmp_path: Path, document: dict[str, object], said: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        Draft(document, "own", "own.toml", tmp_path).axes()
    assert said in str(caught.value)


def test_scenarios_are_named_or_are_files(tmp_path: Path) -> None:
    assert located("./x") == located("./x")
    assert located("x.toml").name == "x.toml"
    with pytest.raises(ScenarioError, match=r"no scenario 'crush'; did you mean 'crash'\?"):
        located("crush")
    for wrong in ("", "a\0b"):
        with pytest.raises(ScenarioError, match="no scenario"):
            draft_named(wrong)
    with pytest.raises(ScenarioError, match="No such file"):
        draft_named(str(tmp_path / "x.toml"))


def test_short_names_mean_one_key_each() -> None:
    assert ALIASES["sessions"] == "workload"
    assert ALIASES["replicas"] == "fleet"
    assert ALIASES["order"] == "engine"
    assert "at_s" not in ALIASES
    assert "fault.at_s" in PATHS

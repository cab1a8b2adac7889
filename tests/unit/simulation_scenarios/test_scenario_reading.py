"""Scenarios in TOML: what they come to, and the one line that says what is wrong with one."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from replica.hardware.profiles import profile_named
from sim.scenario.draft import Draft, drafted
from sim.scenario.errors import ScenarioError
from sim.scenario.facts import facts_of
from sim.scenario.finding import draft_named, shipped
from sim.scenario.keys import TABLES, described
from sim.scenario.model import (
    EngineSpec,
    FaultKind,
    FaultSpec,
    FleetSpec,
    RouterSpec,
    Scenario,
    Slo,
    Start,
    WorkloadPace,
    WorkloadSpec,
)
from sim.scenario.writing import document_of

if TYPE_CHECKING:
    from pathlib import Path

FULL = """
name = "all"
about = "every key"
seed = 7
duration_s = 900
warmup_s = 100.5
policies = ["home", "sticky"]
[workload]
trace = "there/t.jsonl"
trace_format = "mooncake"
pace = "open"
sessions_in_all = 12
once = false
start = "beginning"
rate_factor = 2
gap_s_max = 60
context_tokens_max = 100_000
shared_heads = false
[[fleet]]
profile = "b300-tp4-fp8"
replicas = 2
capacity_tokens = 500_000
host_tokens = 0
max_running_requests = 8
chunk_tokens = 4096
accept_length = 3
accept_spread = 0.1
draft = true
speed = 0.5
[[fleet]]
replicas = 3
[engine]
order = "shortest-prefill-first"
mixed_chunk = true
max_queued_requests = 50
[routers]
count = 2
probe_s = 2
delay_s = 0.1
spread_by_session = false
inflight_max = 9
[[fault]]
kind = "scale-up"
at_s = 10
count = 1
startup_s = 5
[[fault]]
kind = "crash"
at_s = 20
replicas = [5, 0]
duration_s = 30
[[fault]]
kind = "router-loss"
at_s = 30
router = 1
[slo]
ttft_p99_s = 5
tok_per_s_per_user = 80
errors_ratio = 0.01
"""


def written(folder: Path, text: str, name: str = "own.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_every_key_arrives(tmp_path: Path) -> None:
    scenario = drafted(written(tmp_path, FULL)).scenario()
    assert (scenario.name, scenario.about, scenario.seed) == ("all", "every key", 7)
    assert (scenario.duration_s, scenario.warmup_s) == (900.0, 100.5)
    assert scenario.policies == ("home", "sticky")
    traffic = scenario.workload
    assert traffic.trace == str(tmp_path / "there/t.jsonl")
    assert (traffic.trace_format, traffic.pace) == ("mooncake", WorkloadPace.OPEN)
    assert (traffic.sessions_in_all, traffic.start) == (12, Start.BEGINNING)
    assert (traffic.rate_factor, traffic.gap_s_max, traffic.context_tokens_max) == (2, 60, 100_000)
    assert not traffic.has_shared_heads
    assert not traffic.is_once
    first, second = scenario.fleet
    assert first == FleetSpec("b300-tp4-fp8", 2, 500_000, 0, 8, 4096, 3.0, 0.1, speed=0.5)
    assert second == FleetSpec(replicas=3)
    assert scenario.engine == EngineSpec(
        "shortest-prefill-first", is_chunk_mixed=True, max_queued_requests=50
    )
    assert scenario.routers == RouterSpec(2, 2.0, 0.1, is_spread_by_session=False, inflight_max=9)
    assert [fault.kind for fault in scenario.faults] == [
        FaultKind.SCALE_UP,
        FaultKind.CRASH,
        FaultKind.ROUTER_LOSS,
    ]
    assert scenario.faults[1].replicas == (5, 0)
    assert scenario.slo == Slo(ttft_p99_s=5.0, tok_per_s_per_user=80.0, errors_ratio=0.01)


def test_what_fitted_traffic_is_drawn_by_arrives(tmp_path: Path) -> None:
    text = '[workload]\npreset = "fast-tools"\nmix = { heads = 9 }'
    traffic = drafted(written(tmp_path, text)).scenario().workload
    assert (traffic.trace, traffic.preset, traffic.mix) == (None, "fast-tools", {"heads": 9.0})


def test_nothing_said_is_the_defaults(tmp_path: Path) -> None:
    assert drafted(written(tmp_path, "")).scenario() == Scenario("own")


def test_what_is_written_reads_the_same(tmp_path: Path) -> None:
    drafts = [drafted(written(tmp_path, FULL)), *map(draft_named, shipped())]
    for draft in drafts:
        scenario = draft.scenario()
        again = Draft(document_of(scenario), scenario.name, "again", tmp_path)
        assert again.scenario() == scenario


def test_one_group_may_be_a_plain_table(tmp_path: Path) -> None:
    scenario = drafted(written(tmp_path, "[fleet]\nreplicas = 5")).scenario()
    assert scenario.n_replicas == 5


MISTAKES = [
    (f"[workload.mix]\nheads = 1{'0' * 400}", "workload.mix.heads: 1000"),
    ("[workload.mix]\nheads = nan", "workload.mix.heads: nan is not allowed: a number"),
    ("[workload.mix]\nheads = true", "workload.mix.heads: True is not allowed: a number"),
    (f"seed = 1{'0' * 5_000}", "own.toml: no TOML: "),
    ("polices = ['home']", "own.toml: 'polices' is not known; did you mean 'policies'?"),
    (
        "[workload]\nsesions = 3",
        "own.toml: workload: 'sesions' is not known; did you mean 'sessions'",
    ),
    (
        "[[fleet]]\n[[fleet]]\nreplica = 3",
        "own.toml: [[fleet]][2]: 'replica' is not known; did you me",
    ),
    ("[engines]", "'engines' is not known; did you mean 'engine'?"),
    ("seed = 1.5", "own.toml: seed: 1.5 is not allowed: a whole number, 0 to"),
    ("seed = true", "seed: True is not allowed"),
    ("seed = -1", "seed: -1 is not allowed"),
    ("duration_s = 'long'", "duration_s: 'long' is not allowed: a number, over 0 to"),
    ("duration_s = nan", "duration_s: nan is not allowed"),
    ("duration_s = inf", "duration_s: inf is not allowed"),
    ("duration_s = 0", "duration_s: 0 is not allowed"),
    ("name = 3", "name: 3 is not allowed: a text"),
    ("warmup_s = 1800", "own.toml: warmup_s: 1800.0 is not allowed: less than duration_s, 1800"),
    ("policies = []", "policies: [] is not allowed: a list of"),
    ("policies = 'hone'", "policies: 'hone' is not known; did you mean 'home'? there are: "),
    ("policies = ['home', 'home']", "each name once"),
    ("policies = [3]", "policies: 3 is not allowed"),
    ("workload = 3", "workload: 3 is not allowed: a table [workload]"),
    ("fleet = [3]", "fleet: [3] is not allowed: tables [[fleet]]"),
    ("[workload]\nsessions = 0", "own.toml: workload.sessions: 0 is not allowed"),
    ("[workload]\nsessions = 5\nsessions_in_all = 5", "are both given: give one"),
    ("[workload]\nsessions = 10_000\n[[fleet]]\nreplicas = 4096", "1,000,000 sessions"),
    ("[workload]\ncontext_tokens_max = -5", "workload.context_tokens_max: -5 is not allowed"),
    ("[workload]\npace = 'opne'", "workload.pace: 'opne' is not known; did you mean 'open'?"),
    (
        "[workload]\npace = 'open'",
        "workload.pace: 'open' is not allowed: without recorded traffic: g",
    ),
    ("[workload]\ntrace_format = 'weka'", "without recorded traffic: give --trace PATH"),
    ("[workload]\nshared_heads = 1", "workload.shared_heads: 1 is not allowed: true or false"),
    (
        "[workload.mix]\nthick_ration = 1",
        "mix.thick_ration: 'thick_ration' is not known; did you mean",
    ),
    ("[workload.mix]\nthick_ratio = 'x'", "workload.mix.thick_ratio: 'x' is not allowed: a number"),
    ("[workload.mix]\nthick_ratio = 3", "own.toml: workload.mix.thick_ratio: thick_ratio of 3"),
    ("[workload.mix]\nthick_ratio = nan", "workload.mix.thick_ratio: nan is not allowed"),
    (
        "[[fleet]]\nreplicas = 0",
        "own.toml: [[fleet]][1].replicas: 0 is not allowed: a whole number, 1",
    ),
    ("[[fleet]]\nreplicas = 3000\n[[fleet]]\nreplicas = 3000", "fleet: 6000 is not allowed: 4,096"),
    ("[[fleet]]\nprofile = 'b200-tp4-fp9'", "did you mean 'b200-tp4-fp8'?"),
    (
        "[[fleet]]\naccept_length = 9",
        "[[fleet]][1].accept_length: 9 is not within 1 and the 8 tokens",
    ),
    (
        "[[fleet]]\naccept_length = 2\ndraft = false",
        "accept_length: 2 is not within 1 and the 1 tok",
    ),
    ("[[fleet]]\nhost_tokens = -1", "host_tokens: -1 is not allowed"),
    ("[[fleet]]\nspeed = 0", "speed: 0 is not allowed: a number, 0.01 to 100"),
    ("[engine]\norder = 'lifo'", "engine.order: 'lifo' is not known; "),
    ("[engine]\nmax_queued_requests = 0", "engine.max_queued_requests: 0 is not allowed"),
    ("[routers]\nprobe_s = 0", "routers.probe_s: 0 is not allowed"),
    ("[[fault]]\nat_s = 3", "[[fault]][1].kind: it is missing: one of crash"),
    ("[[fault]]\nkind = 'flush'\nreplicas = [0]", "[[fault]][1].at_s: it is missing"),
    ("[[fault]]\nkind = 'crsh'\nat_s = 1", "did you mean 'crash'?"),
    ("[[fault]]\nkind = 'flush'\nat_s = 1", "[[fault]][1].replicas: it is missing"),
    ("[[fault]]\nkind = 'scale-up'\nat_s = 1", "[[fault]][1].count: it is missing"),
    ("[[fault]]\nkind = 'flush'\nat_s = 1\nreplicas = []", "replicas: [] is not allowed"),
    (
        "[[fault]]\nkind = 'flush'\nat_s = -1\nreplicas = [0]",
        "[[fault]][1].at_s: -1 is not allowed",
    ),
    (
        "[[fault]]\nkind = 'flush'\nat_s = 2e3\nreplicas = [0]",
        "at_s: 2000.0 is not allowed: before",
    ),
    (
        "[[fault]]\nkind = 'flush'\nat_s = 1\nreplicas = [16]",
        "replicas: 16 is not allowed: a replica",
    ),
    ("[[fault]]\nkind = 'flush'\nat_s = 1\nreplicas = [-1]", "replicas: -1 is not allowed"),
    (
        "[[fault]]\nkind = 'flush'\nat_s = 1\nreplicas = [0]\nfactor = 2",
        "a flush may say: replicas",
    ),
    (
        "[[fault]]\nkind = 'slow'\nat_s = 1\nreplicas = [0]\nfactor = 0.5",
        "factor: 0.5 is not allowed",
    ),
    (
        "[[fault]]\nkind = 'scale-down'\nat_s = 1\nreplicas = [3]\n[[fault]]\nkind = 'crash'\nat_s = 2\nreplicas = [3]",
        "[[fault]][2].replicas: 3 is not allowed: a replica that there is at 2 s",
    ),
    (
        "[[fleet]]\nreplicas = 1\n[[fault]]\nkind = 'scale-down'\nat_s = 1\nreplicas = [0]",
        "one must stay",
    ),
    (
        "[[fault]]\nkind = 'router-loss'\nat_s = 1",
        "one of routers.count 1, which must be 2 or more",
    ),
    ("[slo]\nttft_p99_s = 0", "slo.ttft_p99_s: 0 is not allowed: a number, over 0"),
    ("[slo]\nttft_p98_s = 1", "slo: 'ttft_p98_s' is not known; did you mean 'ttft_p9"),
    ("a = ", "own.toml: no TOML: "),
    ("a = " + "[" * 5_000, "own.toml: no TOML: "),
    ('about = "\x00"', "own.toml: no TOML: "),
]


@pytest.mark.parametrize(("text", "said"), MISTAKES)
def test_a_mistake_is_one_line_that_names_it(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        drafted(written(tmp_path, text)).scenario()
    message = str(caught.value)
    assert said in message
    assert message.isprintable()
    assert message.startswith(("own.toml: ", str(tmp_path)))


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"no\.toml: cannot be read: No such file"):
        drafted(tmp_path / "no.toml")
    with pytest.raises(ScenarioError, match="cannot be read: Is a directory"):
        drafted(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(ScenarioError, match="no TOML: "):
        drafted(tmp_path / "bytes.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(ScenarioError, match="over 1048576 bytes"):
        drafted(tmp_path / "large.toml")


def test_a_group_is_its_profile_with_changes() -> None:
    profile = profile_named("b200-tp4-fp8")
    assert facts_of(FleetSpec()) == profile
    own = facts_of(FleetSpec(capacity_tokens=100_000, host_tokens=1, chunk_tokens=100, speed=2.0))
    assert (own.capacity_tokens, own.host_capacity_tokens, own.chunk_tokens) == (99_968, 0, 64)
    assert own.times.prefill_s(1_000, 5_000) == pytest.approx(
        profile.times.prefill_s(1_000, 5_000) / 2
    )
    assert own.step_s(4, 1e5) == pytest.approx(profile.step_s(4, 1e5) / 2)
    plain = facts_of(FleetSpec(has_draft=False))
    assert (plain.accept_length, plain.verify_tokens) == (1.0, 1)
    assert plain.capacity_tokens > profile.capacity_tokens
    with pytest.raises(ValueError, match="profile: unknown profile 'x'"):
        facts_of(FleetSpec("x"))


def test_every_field_has_a_key() -> None:
    specs = (WorkloadSpec, FleetSpec, EngineSpec, RouterSpec, FaultSpec, Slo)
    tables = ("workload", "fleet", "engine", "routers", "fault", "slo")
    for spec, table in zip(specs, tables, strict=True):
        named = {key.field for key in TABLES[table].values()}
        assert named == {field.name for field in fields(spec)} - {"mix"}


def test_the_list_of_keys_has_all_of_them() -> None:
    text = "\n".join(described())
    for keys in TABLES.values():
        for name, key in keys.items():
            assert f"  {name}: {key.about} (" in text
    assert "  thick_ratio: " in text


def test_shipped_scenarios_say_what_they_show() -> None:
    assert {"steady", "crash", "published-fleet", "published-replica"} <= set(shipped())
    for name, path in shipped().items():
        scenario = draft_named(name).scenario()
        assert scenario.name == name
        assert re.search(r"\b[Ll]ook", scenario.about), name
        assert "\n" not in scenario.about
        assert "home" in scenario.policies
        assert tomllib.loads(path.read_text())["about"]

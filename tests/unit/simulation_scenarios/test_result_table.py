"""The table of results: its width, what is marked, ratios to the reference, what was not measured."""

from __future__ import annotations

from router.policy.registry import POLICIES
from sim.jobs.table import sweep_table, table_of


def figures(scale: float, **changes: object) -> dict[str, object]:
    found: dict[str, object] = {
        "requests": 98_765,
        "ttft_s": {"mean": scale, "p50": scale / 2, "p90": 2 * scale, "p99": 9 * scale},
        "tok_per_s_per_user": 120.0 / scale,
        "tokens_per_min_per_gpu": 1_234_567.0 / scale,
        "cached_ratio": 0.9 / scale,
        "cached_ratio_ceiling": 0.964,
        "inflight_mean": 5.25,
        "inflight_var_to_mean": scale,
        "moves": 98_765,
        "errors": 0,
    }
    return {**found, **changes}


def test_the_best_are_marked_and_the_reference_is_last() -> None:
    lines = table_of({"home": figures(1.5), "rendezvous": figures(3.0)}, figures(1.0))
    assert max(map(len, lines)) <= 100
    home, other, reference = lines[2:5]
    assert home.split() == [
        *("home", "98,765", "1.50*", "0.75*", "3.00*", "13.50*", "80*", "0.823*", "0.600*"),
        *("5.2", "1.50*", "98,765", "0"),
    ]
    assert "*" not in other
    assert reference.split()[:3] == ["reference", "98,765", "1.00"]
    assert lines[6] == "of the reference (hit ratio: points apart)"
    assert lines[7].split() == [
        *("home", "1.50x", "1.50x", "1.50x", "1.50x", "0.67x", "0.67x", "-30.0"),
        "1.50x",
    ]
    assert lines[-1] == "* best of the policies; a cache that never forgets: hit ratio 0.964"


def test_equals_are_not_marked_and_one_alone_neither() -> None:
    assert "*" not in "".join(table_of({"a": figures(1.0), "b": figures(1.0)}, None)[:-1])
    assert "*" not in "".join(table_of({"a": figures(1.0)}, None))


def test_what_was_not_measured_is_a_dash() -> None:
    nothing: dict[str, object] = {
        "ttft_s": {"mean": None},
        "cached_ratio": None,
        "cached_ratio_ceiling": None,
        "tok_per_s_per_user": None,
        "inflight_var_to_mean": None,
        "requests": 0,
    }
    lines = table_of({"a": nothing, "b": nothing}, nothing)
    assert lines[2].split()[1:4] == ["0", "-", "-"]
    assert max(map(len, lines)) <= 100


def test_collapse_and_every_policy_find_room() -> None:
    policies = {name: figures(100.0) for name in POLICIES}
    lines = table_of(policies, figures(0.5))
    assert max(map(len, lines)) <= 100
    assert [line.split()[0] for line in lines[2 : 2 + len(policies)]] == list(policies)
    assert lines[-2].split()[1] == "200x"


def test_long_names_are_cut() -> None:
    lines = table_of({"a" * 40: figures(1.0), "b": figures(2.0)}, figures(1.0))
    assert max(map(len, lines)) <= 100
    assert "~" in lines[2]


def test_a_sweep_has_its_keys_in_front() -> None:
    points: list[dict[str, object]] = [
        {"at": {"workload.sessions": n, "order": "lpm"}, "policies": {"a": figures(n)}}
        for n in (1, 20)
    ]
    lines = sweep_table(["workload.sessions", "order"], points)
    assert lines[1].split()[:3] == ["sessions", "order", "policy"]
    assert [line.split()[:3] for line in lines[2:]] == [["1", "lpm", "a"], ["20", "lpm", "a"]]
    assert max(map(len, lines)) <= 100

"""The rules by which a policy is judged: what holds whatever the figures are."""

from __future__ import annotations

from math import isclose
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.matrix.rules import BEATEN_MAX, GOALS, Point, Rule, Run, judge, paired, spread_goal

if TYPE_CHECKING:
    from sim.matrix.rules import Verdict

SEEDS = 5
POSITIVE = st.floats(1e-3, 1e6)
PAIRS = st.lists(st.tuples(POSITIVE, POSITIVE), min_size=2, max_size=40)
FINE = Run(1e6, 0.5, 8.0, 0.96, 0.965, 2.0, 1.0)


def run(**changes: float | None) -> Run:
    return FINE._replace(**changes)


def point(load: float, ours: list[Run], theirs: list[Run], reference: list[Run]) -> Point:
    return Point(load, {"home": ours, "sticky": theirs}, reference)


def alike(load: float, **ours: float) -> Point:
    """All policies as the reference, but for what ours has otherwise."""
    runs = [FINE] * SEEDS
    return point(load, [run(**ours)] * SEEDS, runs, runs)


def rules(verdict: Verdict) -> set[Rule]:
    return {finding.rule for finding in verdict.findings}


@given(PAIRS)
def test_a_ratio_lies_in_its_interval_and_turns_round(pairs: list[tuple[float, float]]) -> None:
    ones, others = zip(*pairs, strict=True)
    ratio, inverse = paired(ones, others), paired(others, ones)
    assert ratio is not None
    assert inverse is not None
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low <= ratio.mean * (1 + 1e-9)
    assert ratio.mean <= ratio.high * (1 + 1e-9)
    for one, other in zip(ratio.inverse(), inverse, strict=True):
        assert one is not None
        assert other is not None
        assert isclose(one, other, rel_tol=1e-6)
    assert not (ratio.is_surely_over_one and inverse.is_surely_over_one)


@given(PAIRS, POSITIVE)
def test_it_has_no_unit_and_no_order(pairs: list[tuple[float, float]], scale: float) -> None:
    ones, others = zip(*pairs, strict=True)
    plain = paired(ones, others)
    scaled = paired([one * scale for one in reversed(ones)], [o * scale for o in reversed(others)])
    assert plain is not None
    assert scaled is not None
    assert isclose(plain.mean, scaled.mean, rel_tol=1e-6)


@given(st.floats(0.01, 100.0), st.lists(POSITIVE, min_size=2, max_size=9))
def test_what_differs_alike_with_every_seed_is_sure(times: float, others: list[float]) -> None:
    ratio = paired([times * other for other in others], others)
    assert ratio is not None
    assert isclose(ratio.mean, times, rel_tol=1e-6)
    assert ratio.low is not None
    assert isclose(ratio.low, times, rel_tol=1e-6)


def test_the_interval_is_students() -> None:
    # Logarithms 1 to 5: mean 3, deviation 1.5811, of which 2.776 / sqrt(5) is the reach.
    logs = [1.0, 2.0, 3.0, 4.0, 5.0]
    ratio = paired([2.718281828459045**x for x in logs], [1.0] * 5)
    assert ratio is not None
    assert ratio.mean == pytest.approx(20.0855, rel=1e-4)
    assert ratio.low == pytest.approx(2.718281828459045 ** (3 - 1.9629), rel=1e-3)
    assert ratio.high == pytest.approx(2.718281828459045 ** (3 + 1.9629), rel=1e-3)


def test_what_cannot_be_compared_is_not() -> None:
    assert paired([], []) is None
    assert paired([1.0, None], [1.0, 1.0]) is None
    assert paired([1.0, 0.0], [1.0, 1.0]) is None
    one = paired([3.0], [2.0])
    assert one is not None
    assert one.low is None
    assert one.is_surely_over_one
    with pytest.raises(ValueError, match="zip"):
        paired([1.0], [])


@given(st.lists(st.sampled_from([0.1, 0.5, 0.9, 1.0, 1.15, 1.3]), unique=True, min_size=2))
def test_a_policy_as_good_as_all_others_holds_everywhere(loads: list[float]) -> None:
    verdict = judge([alike(load) for load in sorted(loads)], "home")
    assert verdict.findings == ()
    assert verdict.is_met
    assert (Rule.COLLAPSE in verdict.judged) == (1.3 in loads)
    assert (Rule.REFERENCE in verdict.judged) == (min(loads) <= 0.9)


@pytest.mark.parametrize(("figure", "times"), [("throughput", 1 / 1.02), ("ttft_mean_s", 1.06)])
def test_a_baseline_that_is_surely_better_at_any_load_breaks_the_first_rule(
    figure: str, times: float
) -> None:
    for load in (0.1, 1.3):
        worse = alike(load, **{figure: getattr(FINE, figure) * times})
        assert Rule.BEATEN in rules(judge([worse], "home"))
        # Less than the limit, however sure, breaks nothing.
        most = BEATEN_MAX[figure]
        little = most**-0.5 if figure == "throughput" else most**0.5
        near = alike(load, **{figure: getattr(FINE, figure) * little})
        assert Rule.BEATEN not in rules(judge([near], "home"))


def test_a_baseline_that_is_better_by_chance_does_not() -> None:
    ours = [run(ttft_mean_s=value) for value in (0.9, 0.3, 0.8, 0.4, 0.9)]
    verdict = judge([point(1.0, ours, [FINE] * SEEDS, [FINE] * SEEDS)], "home")
    assert Rule.BEATEN not in rules(verdict)


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"ttft_mean_s": 0.95}, set()),
        ({"ttft_mean_s": 1.1}, {Rule.NEAR}),
        ({"ttft_p99_s": 21.0}, {Rule.REFERENCE, Rule.NEAR}),
        ({"throughput": 0.975e6}, {Rule.REFERENCE}),
        ({"hit_ratio": 0.956}, set()),
        ({"hit_ratio": 0.954}, {Rule.REFERENCE}),
        ({"ttft_mean_s": None}, {Rule.REFERENCE}),
        ({"inflight_mean": 2.9, "inflight_var_to_mean": 9.0}, set()),
        ({"inflight_mean": 3.1, "inflight_var_to_mean": 1.2}, {Rule.SPREAD}),
    ],
)
def test_the_reference_is_near_up_to_nine_tenths(
    changes: dict[str, float], broken: set[Rule]
) -> None:
    assert rules(judge([alike(0.9, **changes)], "home")) - {Rule.BEATEN} == broken
    beyond = rules(judge([alike(1.0, **changes)], "home")) - {Rule.BEATEN}
    assert beyond == broken & {Rule.SPREAD}
    assert judge([alike(0.9, **changes)], "home").is_met == (
        not {f.rule for f in judge([alike(0.9, **changes)], "home").findings} - GOALS
    )


def test_evenness_is_asked_for_as_far_as_the_reference_has_it() -> None:
    runs = [FINE] * SEEDS
    assert spread_goal(point(0.9, runs, runs, [run(inflight_var_to_mean=0.2)] * SEEDS)) == 0.5
    assert spread_goal(point(0.9, runs, runs, [run(inflight_var_to_mean=0.6)] * SEEDS)) == 0.75


def test_throughput_is_kept_above_capacity() -> None:
    loads = [alike(0.9, throughput=0.9e6), alike(1.0), alike(1.15), alike(1.3, throughput=0.91e6)]
    assert Rule.COLLAPSE not in rules(judge(loads, "home"))
    fallen = judge([*loads[:-1], alike(1.3, throughput=0.89e6)], "home")
    (finding,) = fallen.of(Rule.COLLAPSE)
    assert finding.load == 1.3
    assert "89% of its own best, which it has at 100%" in finding.words
    assert not fallen.is_met


def test_figures_that_are_missing_in_a_baseline_do_not_make_it_better() -> None:
    theirs = [run(ttft_mean_s=None, ttft_p99_s=None, throughput=0.0)] * SEEDS
    verdict = judge([point(1.3, [FINE] * SEEDS, theirs, [FINE] * SEEDS)], "home")
    assert verdict.findings == ()

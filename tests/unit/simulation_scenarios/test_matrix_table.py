"""The printed verdict."""

from __future__ import annotations

from sim.matrix.plan import Part, Plan, Traffic
from sim.matrix.rules import Point, Run, judge
from sim.matrix.table import WIDTH, Judged, in_short, part_table, summary

PLAN = Plan()
NAMES = ["smg_cache_aware_old", "smg_cache_aware", "least_inflight", "power_of_two"]
FINE = Run(1.7e6, 0.5, 8.0, 0.96, 0.965, 2.0, 1.0)


def judged(ours: Run, *, n_size: int = 0, far: Run = FINE) -> Judged:
    part = Part(PLAN.sizes[n_size], Traffic.GENERATOR, "shortest-prefill-first")
    points = [
        Point(load, {"home": [ours] * 5, **{name: [far] * 5 for name in NAMES}}, [FINE] * 5)
        for load in part.size.loads
    ]
    return Judged(part, "home", 45.5, NAMES, points, judge(points, "home"))


BAD = Run(0.9e6, 123.4, 456.7, 0.5, 0.97, 123.4, 45.6)


def test_it_is_no_wider_than_a_terminal() -> None:
    for one in (judged(FINE), judged(BAD), judged(FINE, far=BAD), judged(BAD, n_size=2)):
        for line in [*part_table(one, PLAN), *summary([one, one], has_trace=False)]:
            assert len(line) <= WIDTH, line


def test_what_holds_is_plain() -> None:
    one = judged(FINE)
    lines = part_table(one, PLAN)
    assert lines[0] == (
        "16 replicas, generator, shortest-prefill-first: 100 % is 45.5 sessions a replica"
    )
    assert "!" not in "".join(lines)
    assert "~" not in "".join(lines)
    assert in_short(one).endswith(": home holds")
    assert summary([one], has_trace=True)[-1] == "home: every rule holds"


def test_what_does_not_hold_is_marked_and_said() -> None:
    one = judged(BAD)
    text = "\n".join(part_table(one, PLAN))
    assert "247x!" in text
    assert "0.529x!" in text
    assert "-47.0!" in text
    assert "45.60~" in text
    assert "+88.9 (4)!" in text
    assert "a,c" in text
    assert "(c) at 10 %: mean TTFT 246.80x the reference's" in text
    told = summary([one, judged(FINE)], has_trace=False)
    assert "10-90" in "\n".join(told)
    assert told[-1].startswith("home: 1 of 2 parts break a rule; recorded traffic was left out")
    assert in_short(one).endswith(": home breaks (a) at 10-130 %; (c) at 10-90 %")


def test_what_was_not_measured_is_a_dash() -> None:
    none = Run(0.0, None, None, None, None, 0.0, None)
    text = "\n".join(part_table(judged(none), PLAN))
    assert "nothing was measured" in text
    assert " - " in text

"""What the page says: the findings in words, the table, the charts, and what is absent."""

from __future__ import annotations

import copy
import html
import re
from typing import Any

import pytest

from sim.page import render
from tests.unit.simulation_page.page_documents import compared, figures, scenario, sized, swept
from tests.unit.simulation_page.page_reader import Page


def text_of(document: dict[str, Any]) -> str:
    return re.sub(r"\s+", " ", Page(render(document)).text).replace(" ,", ",").replace(" .", ".")


def test_the_findings_name_the_best_its_distance_and_who_collapses() -> None:
    said = text_of(compared())
    assert "home answers soonest: TTFT 800 ms in the mean, 8.80 s at p99" in said
    assert (
        "1.8\N{MULTIPLICATION SIGN} and 1.8\N{MULTIPLICATION SIGN} the clairvoyant reference's mean and p99"
        in said
    )
    assert (
        "round_robin collapses here: 40.0 s in the mean and 643 k tokens a minute and GPU" in said
    )
    assert "sticky collapses" not in said


def test_the_findings_tell_the_best_mean_from_the_best_tail() -> None:
    found = {
        "home": figures(0.8, ttft_s={"mean": 0.8, "p50": 0.1, "p90": 2.0, "p99": 20.0}),
        "sticky": figures(
            1.1, ttft_s={"mean": 1.1, "p50": 0.1, "p90": 2.0, "p99": 9.0}, cached_ratio=0.96
        ),
    }
    said = text_of(compared(policies=found, reference=None))
    assert (
        "home has the least mean TTFT, 800 ms (p99 20.0 s); sticky the least p99, 9.00 s." in said
    )
    assert (
        "; the highest, 96.0 % of sticky, comes with 1.4\N{MULTIPLICATION SIGN} its mean TTFT"
        in said
    )


def test_one_policy_alone_is_told_without_a_comparison() -> None:
    said = text_of(compared({"home": 0.8}, command="run", reference=None))
    assert "home answers after 800 ms in the mean and 8.80 s at p99." in said
    assert "reference 4" not in said
    assert "no reference" in said


def test_failed_requests_are_among_the_findings() -> None:
    found = {"home": figures(0.8, errors=3), "sticky": figures(1.9, errors=1_200)}
    said = text_of(compared(policies=found))
    assert "2 of 2 policies had requests that failed, at most 1,200 of 12,345 with sticky." in said


def test_nothing_measured_is_said_first() -> None:
    bare = {"requests": 0, "reasons": {}, "curves": {}}
    page = Page(render(compared(policies={"home": bare}, reference=None)))
    assert "No request was measured" in page.text
    assert not page.all("svg")


def test_the_table_is_sorted_by_mean_ttft_and_ends_with_the_reference() -> None:
    written = render(compared({"sticky": 1.9, "home": 0.8, "random": 40.0}))
    table = written[written.index("<tbody>") : written.index("</tbody>")]
    names = re.findall(
        r'title="([a-z_]+)(?: \(shortest-backlog\))?"[^>]*><i class="swatch">', table
    )
    assert names == ["home", "sticky", "random", "reference"]


def test_the_best_of_a_column_and_what_is_far_from_the_reference_are_marked() -> None:
    written = render(compared({"home": 0.8, "sticky": 1.9}))
    cells = re.findall(r'<td class="([^"]*)"[^>]*><span>([^<]*)</span>', written)
    marks = {said: classes.split() for classes, said in reversed(cells)}
    assert "best" in marks["800 ms"]
    assert "far" not in marks["800 ms"]
    assert "far" in marks["1.90 s"]
    assert "best" not in marks["1.90 s"]
    assert {"best", "far"}.isdisjoint(marks["450 ms"])


FIGURES: dict[str, str] = {
    "tok_per_s_per_user": "77.9",
    "tokens_per_min_per_gpu": "1.46 M",
    "cached_ratio": "92.5 %",
    "cached_ratio_ceiling": "96.4 %",
    "predicted_cached_ratio": "90.0 %",
    "host_ratio": "40.0 %",
    "inflight_mean": "4.20",
    "inflight_var_to_mean": "1.70",
    "moves": "21",
    "errors": "0",
    "unfinished": "3",
    "retries": "1",
    "repeats": "2",
    "requests": "12,345",
    "gpus_mean": "64.0",
}


@pytest.mark.parametrize("key", FIGURES)
def test_every_figure_is_in_the_table_or_named_as_absent(key: str) -> None:
    document = compared({"home": 0.8}, reference=None)
    assert f"<span>{FIGURES[key]}</span>" in render(document)
    del document["policies"]["home"][key]
    lacking = re.search(r"Not in the results: ([^<]*)\.<", render(document))
    assert lacking
    assert lacking[1] == key


@pytest.mark.parametrize("key", ["ttft_s", "ttft_warm_s", "ttft_cold_s", "itl_s"])
def test_a_spread_of_times_is_in_the_table_or_named_as_absent(key: str) -> None:
    document = compared({"home": 0.8}, reference=None)
    assert "Not in the results" not in render(document)
    document["policies"]["home"][key] = None
    assert f"{key}.mean" in render(document)


CURVES: dict[str, str] = {
    "ttft_cdf": "curves.ttft_cdf",
    "over_time": "curves.over_time.ttft_mean_s",
    "inflight_spread": "curves.inflight_spread",
    "replicas": "curves.replicas.inflight",
}


@pytest.mark.parametrize("key", CURVES)
def test_a_curve_that_is_absent_is_named_and_no_frame_is_drawn(key: str) -> None:
    document = compared({"home": 0.8}, reference=None)
    whole = Page(render(document))
    assert CURVES[key] not in whole.text
    document["policies"]["home"]["curves"][key] = None
    without = Page(render(document))
    assert CURVES[key] in without.text
    assert len(without.all("svg")) < len(whole.all("svg"))


def test_reasons_are_shares_of_requests_and_rare_ones_are_counted_together() -> None:
    reasons = {"home": 900, **{f"rare-{n}": 10 for n in range(10)}}
    written = render(compared(policies={"home": figures(reasons=reasons)}))
    assert "home: home 90.0 % (900)" in written
    assert "home: other 4.0 % (40)" in written
    assert 'title="home: rare-9' not in written


def test_events_are_marked_and_listed() -> None:
    events = [
        {"at_s": 700.0, "what": "crash", "replica": "r0001"},
        {"at_s": 700.0, "what": "crash", "replica": "r0002"},
        {"at_s": 900.0, "what": "ready", "replica": "r0001"},
    ]
    document = compared(policies={name: figures(events=events) for name in ("home", "sticky")})
    said = text_of(document)
    assert "crash 2 replicas" in said
    assert "All events (2)" in said
    assert "11.7 min crash r0001, r0002" in said


def test_a_policy_has_one_colour_everywhere_and_on_every_page_that_has_the_same_policies() -> None:
    one, other = (
        render(compared(dict(order)))
        for order in ([("home", 0.8), ("sticky", 1.9)], [("sticky", 0.3), ("home", 5.0)])
    )
    for written in (one, other):
        looks = set(
            re.findall(
                r'class="(?:chip )?(s\d|ref)( alt)?" [^>]*?data-(?:p|toggle)="([^"]*)"', written
            )
        )
        assert looks == {("s0", "", "0"), ("s1", "", "1"), ("ref", "", "ref")}
        assert re.findall(r'data-toggle="(\d)"><i class="swatch"></i>(\w+)<', written) == [
            ("0", "home"),
            ("1", "sticky"),
        ]


def test_a_sweep_is_drawn_along_its_key_in_order_a_group_for_each_other_key() -> None:
    document = swept()
    said = text_of(document)
    assert "With order fcfs, home has the least mean TTFT at 3 of 3 points" in said
    assert "800 ms (2.0\N{MULTIPLICATION SIGN} the reference's) at 24 sessions per replica" in said
    assert "Mean TTFT over sessions per replica, order lof" in said
    written = render(document)
    chosen = re.findall(r'<label for="points-sweep-0-\d">([^<]*)</label>', written)
    assert chosen == [f"sessions per replica {load}" for load in (24, 32, 48)]
    again = html.unescape(re.search(r"<code>(.*?)</code>", written)[1])  # type: ignore[index]
    assert "--over engine.order=fcfs,lof --over workload.sessions_per_replica=48,24,32" in again


def test_a_size_is_told_with_what_the_next_smaller_one_fails_by() -> None:
    said = text_of(sized())
    assert "home needs 6 replicas; with 5, TTFT p99 6.10 s is over 5 s." in said
    assert "sticky has too few with 8 replicas: TTFT p99 6.10 s is over 5 s." in said
    assert "homeport sim size steady --ttft-p99 5 --policies home,sticky --seed 7" in said


def test_the_scenario_is_told_with_units_and_without_what_is_off() -> None:
    said = text_of(
        compared(
            scenario=scenario(workload={"gap_s_max": 300.0, "once": False, "shared_heads": True})
        )
    )
    assert "30 min of virtual time, 10 min of them warm-up" in said
    assert "gap max 300 s, shared heads" in said
    assert "host tokens 7.00 M" in said
    assert "homeport sim compare steady --policies home,sticky --seed 7" in said
    given = ["compare", "steady", "--set", "fleet.1.replicas=8"]
    assert "homeport sim compare steady --set fleet.1.replicas=8" in text_of(
        compared(arguments=given)
    )


def test_replicas_beyond_what_is_drawn_are_taken_together_and_those_not_told_are_counted() -> None:
    document = copy.deepcopy(compared({"home": 0.8}, reference=None))
    document["scenario"]["fleet"][0]["replicas"] = 512
    assert "The results hold the first 4 of 512 replicas." in render(document)
    rows = document["policies"]["home"]["curves"]["replicas"]
    rows["inflight"] = [[1.0, 2.0]] * 512
    rows["ids"] = [f"r{n}" for n in range(512)]
    assert "rows are the fullest of 8" in render(document)


def test_more_points_than_can_be_chosen_are_all_there_to_unfold() -> None:
    points = [
        {
            "at": {"workload.sessions_per_replica": load},
            "policies": {name: figures(load / 10, curves=None) for name in ("home", "sticky")},
        }
        for load in range(1, 31)
    ]
    page = Page(render(compared(command="sweep", policies={}, points=points)))
    assert len(page.all("details")) == 30
    assert not page.all("input")

"""What the page makes of a sweep: one chart of a ladder, matrices of many policies, findings along a key."""

from __future__ import annotations

import html
import re
from typing import Any

from sim.page import render
from tests.unit.simulation_page.page_documents import (
    LADDER,
    POLICIES,
    USERS,
    compared,
    contested,
    figures,
    laddered,
    scenario,
    swept,
)
from tests.unit.simulation_page.page_reader import Page

TIMES = "\N{MULTIPLICATION SIGN}"


def text_of(document: dict[str, Any]) -> str:
    return re.sub(r"\s+", " ", Page(render(document)).text).replace(" ,", ",").replace(" .", ".")


def cards(written: str) -> dict[str, str]:
    """The page's charts and tables by their headings."""
    return {
        html.unescape(part.partition("</h3>")[0]): part.partition("</section>")[0]
        for part in written.split("<h3>")[1:]
    }


def matrix(card: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """The rows of a table: name, then classes and text of each cell."""
    body = card[card.index("<tbody>") : card.index("</tbody>")]
    return [
        (
            re.findall(r'scope="row" class="name" title="([^"]*)"', row)[0],
            re.findall(r'<td(?: class="([^"]*)")?[^>]*>(?:<span>)?([^<]*)', row),
        )
        for row in body.split("</tr>")[:-1]
    ]


def test_a_ladder_of_variants_is_one_chart_with_a_curve_a_variant() -> None:
    written = render(laddered())
    chart = cards(written)["Throughput against interactivity"]
    assert re.findall(r'data-n="([^"]*)"', chart) == list(LADDER)
    for slot, (peak, _) in enumerate(LADDER.values()):
        shown = rf'class="value s{slot}[^"]*" data-p="{slot}" style="[^"]*">{peak}<'
        assert re.search(shown, chart)
    assert "the numbers are sessions" in chart
    assert re.findall(r'data-toggle="(\d)"><i class="swatch"></i>([^<]*)<', written) == [
        (str(slot), name) for slot, name in enumerate(LADDER)
    ]
    lines = cards(written)["Throughput over sessions"]
    assert re.findall(r'data-n="([^"]*)"', lines) == list(LADDER)


def test_a_ladder_says_where_each_variant_peaks_and_collapses_and_how_far_the_best_is() -> None:
    said = text_of(laddered())
    most = "host-tier does most: 500 k tokens a minute and GPU at 22 sessions"
    assert f"{most}, 5.0{TIMES} the peak of bf16 at 5.0{TIMES} its tokens/s a user." in said
    assert (
        "bf16 peaks at 5 sessions: 100 k tok/min/GPU, 95.0 tok/s/user, mean TTFT 500 ms, hit ratio "
        "95.0 %. By 10 sessions it has collapsed to 50.0 k at a hit ratio of 25.0 %; it gives 50.0 k "
        "at 22 sessions." in said
    )
    assert f"fp8-kv peaks at 10 sessions: 250 k tok/min/GPU (2.5{TIMES} the first's)" in said
    assert "host-tier is highest at the last point, at 22 sessions" in said
    assert "has the least mean TTFT" not in said


def test_a_curve_that_keeps_its_throughput_does_not_collapse() -> None:
    points = [
        {"at": {"sessions": n}, "policies": {"home": figures(tokens_per_min_per_gpu=rate)}}
        for n, rate in ((4, 90_000.0), (8, 100_000.0), (16, 86_000.0))
    ]
    said = text_of(compared(command="sweep", policies={}, reference=None, points=points))
    assert "home peaks at 8 sessions: 100 k tok/min/GPU" in said
    assert "It does not collapse up to 16 sessions." in said


def test_values_of_the_other_key_are_curves_in_ascending_order_named_with_it() -> None:
    document = laddered()
    lengths = dict(zip(LADDER, (5.84, 1.0, 5.0), strict=True))
    for point in document["points"]:
        point["at"] = {
            "fleet.1.accept_length": lengths[point["at"]["variant"]],
            "sessions": point["at"]["sessions"],
        }
    chart = cards(render(document))["Throughput against interactivity"]
    names = ["accept length 1", "accept length 5", "accept length 5.84"]
    assert re.findall(r'data-n="([^"]*)"', chart) == names


def test_a_ladder_beside_its_reference_has_both_views_and_no_colour_twice() -> None:
    written = render(laddered(has_reference=True))
    said = text_of(laddered(has_reference=True))
    assert "Over sessions, by variant" in said
    assert "Over sessions and against the reference" in said
    looks = re.findall(r'class="(s\d|ref)" data-p="[^"]*" data-n="([^"]*)"', written)
    assert set(looks) == {
        ("s0", "home"),
        ("s1", "bf16"),
        ("s2", "fp8-kv"),
        ("s3", "host-tier"),
        ("ref", "reference"),
    }
    assert f"{TIMES} the reference's" not in said.partition("Light / dark")[0]


def test_more_values_than_curves_can_be_told_apart_stay_groups() -> None:
    points = [
        {
            "at": {"variant": f"v{n}", "sessions": users},
            "policies": {"home": figures(users, curves=None)},
        }
        for n in range(17)
        for users in (1, 2)
    ]
    found = cards(render(compared(command="sweep", policies={}, reference=None, points=points)))
    chart = found["Throughput over sessions, variant v16"]
    assert re.findall(r'data-n="([^"]*)"', chart) == ["home"]


def test_many_policies_are_first_one_matrix_a_figure_over_all_points() -> None:
    written = render(contested())
    first = re.findall(r"<caption>([^<]*)</caption>", written)[:4]
    names = ("Mean TTFT", "p99 TTFT", "Hit ratio", "Throughput, tokens/min/GPU")
    assert first == [f"{name}, by sessions per replica" for name in names]
    assert written.index(first[3]) < written.index("Mean TTFT over sessions per replica")
    found = cards(written)[first[0]]
    groups = re.findall(r'<th colspan="(\d)" scope="colgroup">([^<]*)</th>', found)
    assert groups == [("5", "order lof"), ("5", "order fcfs")]
    assert re.findall(r'scope="col"[^>]*>(\d+)<', found) == ["16", "24", "32", "40", "48"] * 2
    rows = matrix(found)
    assert [name for name, _ in rows] == [*reversed(POLICIES), "reference"]
    assert [text for _, text in rows[0][1]][:2] == ["1.00 s", "1.50 s"]
    assert all("best" in classes for classes, _ in rows[0][1])
    assert not any("best" in classes for _, cells in rows[1:] for classes, _ in cells)
    assert all("far" in classes for _, cells in rows[:-1] for classes, _ in cells)


def test_a_policy_that_is_missing_at_a_point_has_an_empty_cell_there() -> None:
    document = contested()
    del document["points"][0]["policies"]["sticky"]
    found = cards(render(document))["Mean TTFT, by sessions per replica"]
    cells = dict(matrix(found))["sticky"]
    assert cells[0][1] == "\N{EN DASH}"
    assert cells[1][1] == "1.50 s"


def test_charts_of_one_figure_are_beside_each_other_with_equal_axes() -> None:
    document = swept()
    for point in document["points"]:
        if point["at"]["engine.order"] == "lof":
            point["policies"]["home"]["ttft_s"]["mean"] *= 50
    found = cards(render(document))
    charts = [name for name in found if name.startswith("Mean TTFT over")]
    assert charts == [f"Mean TTFT over sessions per replica, order {o}" for o in ("fcfs", "lof")]
    axes = [re.findall(r'data-[xy]="([^"]*)"', found[name]) for name in charts]
    assert axes[0] == axes[1]


def test_one_policy_along_one_key_is_one_table_with_a_row_a_point() -> None:
    points = [
        {"at": {"sessions": users}, "policies": {"home": figures(users / 10, curves=None)}}
        for users in reversed(USERS)
    ]
    document = compared(command="sweep", policies={}, reference=None, points=points)
    written = render(document)
    assert written.count("<table>") == 1
    table = cards(written)["All figures, by sessions"]
    assert [name for name, _ in matrix(table)] == [f"{users} sessions" for users in USERS]


def test_long_tables_of_the_scenario_are_folded_and_what_is_swept_is_told() -> None:
    mix = {f"growth_p{n}_tokens": n * 1_000 for n in range(40)}
    document = laddered(
        scenario=scenario(workload={"pace": "closed", "mix": mix, "fault": {"rate": 0.5}}),
        arguments=["sweep", "published-replica", "--over", "sessions=2,5"],
    )
    written = render(document)
    folded = re.findall(r"<details[^>]*><summary>([^<]*)</summary>([^<]*)</details>", written)
    assert [summary for summary, _ in folded] == ["mix: 40 values"]
    assert "growth p7 tokens 7.00 k" in folded[0][1]
    assert "pace closed, fault rate 0.5<details" in written
    assert "sessions 2, 5, 10, 16, 22; variant bf16, fp8-kv, host-tier" in written
    assert "<code>homeport sim sweep published-replica --over sessions=2,5</code>" in written


def test_the_wall_time_of_a_sweep_is_told_of_all_runs_together() -> None:
    footer = render(laddered()).partition("<footer>")[2]
    assert "Wall time: 15 runs 96.0 s for 270,000 requests." in footer


def test_no_mark_of_a_best_one_is_explained_where_one_policy_is_beside_its_reference() -> None:
    document = swept()
    for point in document["points"]:
        del point["policies"]["sticky"]
        point["at"].pop("engine.order")
    found = cards(render(document))["Mean TTFT, by sessions per replica"]
    assert "best of its column" not in found
    assert "worse than the reference" in found

"""The table of policies side by side, the best of each column and what is far from the reference marked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sim.page.drawing.markup import Markup, element
from sim.page.drawing.units import ABSENT, count, percent, plain, seconds, times, tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.page.document import Entry, Results

FAR: Final = 2.0
"""How many times worse than the reference is marked."""


@dataclass(slots=True, frozen=True)
class Column:
    """One figure. ``better``: -1 where less is, 1 where more is, 0 where neither is."""

    group: str
    title: str
    path: tuple[str, ...]
    said: Callable[[float | None], str]
    better: int = 0
    has_bar: bool = False
    is_compared: bool = False


COLUMNS: Final = (
    Column("TTFT", "mean", ("ttft_s", "mean"), seconds, -1, has_bar=True, is_compared=True),
    Column("TTFT", "p50", ("ttft_s", "p50"), seconds, -1, is_compared=True),
    Column("TTFT", "p90", ("ttft_s", "p90"), seconds, -1, is_compared=True),
    Column("TTFT", "p99", ("ttft_s", "p99"), seconds, -1, is_compared=True),
    Column("Yield", "tok/min/GPU", ("tokens_per_min_per_gpu",), tokens, 1, is_compared=True),
    Column("Yield", "tok/s/user", ("tok_per_s_per_user",), plain, 1, is_compared=True),
    Column("Cache", "hit ratio", ("cached_ratio",), percent, 1),
    Column("Cache", "ceiling", ("cached_ratio_ceiling",), percent),
    Column("In flight", "mean", ("inflight_mean",), plain),
    Column("In flight", "var/mean", ("inflight_var_to_mean",), plain, -1),
    Column("Mean TTFT of", "warm", ("ttft_warm_s", "mean"), seconds, -1, is_compared=True),
    Column("Mean TTFT of", "cold", ("ttft_cold_s", "mean"), seconds, -1, is_compared=True),
    Column("ITL", "mean", ("itl_s", "mean"), seconds, -1, is_compared=True),
    Column("ITL", "p99", ("itl_s", "p99"), seconds, -1, is_compared=True),
    Column("Hits", "predicted", ("predicted_cached_ratio",), percent),
    Column("Hits", "from host", ("host_ratio",), percent),
    Column("Events", "moves", ("moves",), count),
    Column("Events", "retries", ("retries",), count, -1),
    Column("Events", "repeats", ("repeats",), count, -1),
    Column("Events", "errors", ("errors",), count, -1),
    Column("Events", "unfinished", ("unfinished",), count, -1),
    Column("Run", "requests", ("requests",), count, 1),
    Column("Run", "GPUs", ("gpus_mean",), plain),
)


def table(results: Results, caption: str, *, noun: str = "policy") -> Markup:
    """All entries by mean TTFT and the reference, a row each. Columns that nobody has are named below.

    ``noun``: what a row is.
    """
    if not results.entries:
        return element("p", "The results hold no policy.", class_="absent")
    shown = [c for c in COLUMNS if any(e.number(*c.path) is not None for e in results.all)]
    lacking = [".".join(c.path) for c in COLUMNS if c not in shown]
    body = [_row(entry, results, shown) for entry in results.all]
    if not shown:
        return element("p", f"The results hold no figures: {', '.join(lacking)}.", class_="absent")
    drawn = element(
        "table",
        element("caption", caption),
        element("thead", _groups(shown), _titles(shown, noun)),
        element("tbody", *body),
    )
    box = element("div", drawn, class_="scroll", tabindex=0, role="region", aria_label=caption)
    key = keys(
        has_best=len(results.entries) > 1, has_far=results.reference is not None, lacking=lacking
    )
    return element("div", box, key, class_="table")


def _groups(shown: Sequence[Column]) -> Markup:
    cells = [element("td")]
    names = list(dict.fromkeys(column.group for column in shown))
    for name in names:
        span = sum(1 for column in shown if column.group == name)
        cells.append(element("th", name, colspan=span, scope="colgroup"))
    return element("tr", *cells, class_="groups")


def _titles(shown: Sequence[Column], noun: str) -> Markup:
    first = [n == 0 or shown[n - 1].group != column.group for n, column in enumerate(shown)]
    cells = [
        element("th", column.title, scope="col", class_="first" if is_first else None)
        for column, is_first in zip(shown, first, strict=True)
    ]
    return element("tr", element("th", noun, scope="col", class_="name"), *cells)


def _row(entry: Entry, results: Results, shown: Sequence[Column]) -> Markup:
    rule = entry.figures.get("rule")
    name = entry.name + (f" ({rule})" if isinstance(rule, str) and rule else "")
    cells = [
        cell(entry, results, column, is_first=n == 0 or shown[n - 1].group != column.group)
        for n, column in enumerate(shown)
    ]
    return element("tr", heading(name), *cells, class_=entry.css, data_p=entry.key)


def heading(name: str) -> Markup:
    """The head of an entry's row, with its colour."""
    return element(
        "th", element("i", class_="swatch"), name, scope="row", class_="name", title=name
    )


def cell(entry: Entry, results: Results, column: Column, *, is_first: bool) -> Markup:
    """One figure of an entry: marked where it is the best of the results, or far from their reference."""
    value = entry.number(*column.path)
    classes = ["first"] if is_first else []
    if value is None:
        return element("td", ABSENT, class_=" ".join(classes) or None, title="not measured")
    title = None
    if not entry.is_reference:
        if _is_best(value, results, column):
            classes.append("best")
        ratio = _ratio(value, results, column)
        if ratio is not None:
            title = (
                f"{times(ratio)} the reference's"
                if column.better < 0
                else f"the reference has {times(ratio)}"
            )
            if ratio > FAR:
                classes.append("far")
    content = [element("span", column.said(value))]
    if column.has_bar:
        classes.append("bar")
        content.append(element("i", style=f"width:{_share(value, results, column) * 100:.0f}%"))
    return element("td", *content, class_=" ".join(classes) or None, title=title)


def _is_best(value: float, results: Results, column: Column) -> bool:
    """Whether no policy has a better one, and some has a worse one."""
    known = [v for e in results.entries if (v := e.number(*column.path)) is not None]
    if not column.better or min(known) == max(known):
        return False
    return value == (max(known) if column.better > 0 else min(known))


def _ratio(value: float, results: Results, column: Column) -> float | None:
    """How many times worse than the reference; None where they are not compared."""
    base = (
        results.reference.number(*column.path) if results.reference and column.is_compared else None
    )
    if base is None or base <= 0 or value <= 0:
        return None
    return value / base if column.better < 0 else base / value


def _share(value: float, results: Results, column: Column) -> float:
    top = max(v for e in results.all if (v := e.number(*column.path)) is not None)
    return value / top if top > 0 else 0.0


def keys(*, has_best: bool, has_far: bool, lacking: Sequence[str] = ()) -> Markup:
    """What the marks of a table say, and which figures nobody has."""
    parts = []
    if has_best:
        parts.append(element("span", "bold with a mark: best of its column", class_="key best"))
    if has_far:
        parts.append(
            element("span", f"more than {FAR:g} times worse than the reference", class_="key far")
        )
    if lacking:
        parts.append(element("span", f"Not in the results: {', '.join(lacking)}."))
    return element("p", *parts, class_="about keyline") if parts else Markup()

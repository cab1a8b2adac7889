"""Results as text of at most 100 columns: a row a policy, the best figures marked, the reference last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sim.measure.text import aligned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Figures = dict[str, object]
"""What one run gave, as plain values."""

BEST: Final = "*"
_NONE: Final = "-"
_TIE_RATIO: Final = 1e-9
_TEN: Final = 10.0
_HUNDRED: Final = 100.0
_NAME_CHARS: Final = 19


@dataclass(frozen=True, slots=True)
class Column:
    """One figure: where it is, how many decimals are written, and which end of it is better (-1 low, 1 high, 0 neither).

    ``is_share``: its distance to the reference is a difference in points, not a ratio.
    """

    head: tuple[str, str]
    path: tuple[str, ...]
    decimals: int
    better: int = 0
    scale: float = 1.0
    is_share: bool = False

    def value(self, figures: Figures) -> float | None:
        """The figure, None where nothing was measured."""
        found: object = figures
        for name in self.path:
            found = found.get(name) if isinstance(found, dict) else None
        return float(found) * self.scale if isinstance(found, int | float) else None

    def written(self, value: float | None) -> str:
        """It as text."""
        return _NONE if value is None else _short(value, self.decimals)

    def against(self, value: float | None, reference: float | None) -> str:
        """How far it is from the reference's."""
        if value is None or reference is None or not self.better:
            return ""
        if self.is_share:
            return f"{(value - reference) * 100:+.1f}"
        return f"{_short(value / reference, 2, full=_TEN)}x" if reference else _NONE


def _short(value: float, decimals: int, *, full: float = _HUNDRED) -> str:
    """A number with its decimals below ``full``, and one fewer for each power of ten from there on."""
    fewer = sum(abs(value) >= bound for bound in (full, full * _TEN))
    return f"{value:,.{max(0, decimals - fewer)}f}"


COLUMNS: Final = (
    Column(("", "reqs"), ("requests",), 0),
    Column(("TTFT s", "mean"), ("ttft_s", "mean"), 2, -1),
    Column(("", "p50"), ("ttft_s", "p50"), 2, -1),
    Column(("", "p90"), ("ttft_s", "p90"), 2, -1),
    Column(("", "p99"), ("ttft_s", "p99"), 2, -1),
    Column(("tok/s", "/user"), ("tok_per_s_per_user",), 0, 1),
    Column(("Mtok/", "m/GPU"), ("tokens_per_min_per_gpu",), 3, 1, 1e-6),
    Column(("hit", "ratio"), ("cached_ratio",), 3, 1, is_share=True),
    Column(("infl", "mean"), ("inflight_mean",), 1),
    Column(("var/", "mean"), ("inflight_var_to_mean",), 2, -1),
    Column(("", "moves"), ("moves",), 0),
    Column(("", "errs"), ("errors",), 0),
)
_SHORT: Final = tuple(
    column for column in COLUMNS if column.head[1] not in ("reqs", "p50", "moves")
)


def table_of(
    policies: Mapping[str, Figures],
    reference: Figures | None,
    *,
    head: str = "policy",
    is_ranked: bool = True,
) -> list[str]:
    """The rows of some policies of one scenario, or of what else ``head`` says."""
    named = [(_cut(name), figures) for name, figures in policies.items()]
    is_ranked = is_ranked and len(named) > 1
    rows = [_cells(figures, COLUMNS) for _, figures in named]
    if is_ranked:
        rows = _marked([figures for _, figures in named], COLUMNS)
    body = [[name, *cells] for (name, _), cells in zip(named, rows, strict=True)]
    if reference is not None:
        body.append(["reference", *_cells(reference, COLUMNS)])
        for name, figures in named:
            apart = [
                column.against(column.value(figures), column.value(reference)) for column in COLUMNS
            ]
            body.append([name, *(f"{cell} " for cell in apart)])
    lines = aligned([("", head), *(column.head for column in COLUMNS)], body)
    if reference is not None:
        lines[-len(named) : -len(named)] = ["", "of the reference (hit ratio: points apart)"]
    ceilings = [figures.get("cached_ratio_ceiling") for _, figures in named]
    known = [ceiling for ceiling in ceilings if isinstance(ceiling, float)]
    words = f"{BEST} best of the policies" if is_ranked else ""
    if known:
        ceiling = f"a cache that never forgets: hit ratio {max(known):.3f}"
        words = f"{words}; {ceiling}" if words else ceiling
    return [*lines, words] if words else lines


def sweep_table(axes: Sequence[str], points: Sequence[Mapping[str, object]]) -> list[str]:
    """The rows of a sweep: the point, the policy, its figures; the best of a point's policies marked."""
    body: list[list[str]] = []
    for point in points:
        at, policies = point["at"], point["policies"]
        assert isinstance(at, dict), "a point says where it is"
        assert isinstance(policies, dict), "a point has policies"
        rows = _marked(list(policies.values()), _SHORT)
        where = [_value(at[axis]) for axis in axes]
        for name, cells in zip(policies, rows, strict=True):
            body.append([*where, _cut(name), *cells])
        reference = point.get("reference")
        if isinstance(reference, dict):
            body.append([*where, "reference", *_cells(reference, _SHORT)])
    heads = [("", axis.rpartition(".")[2]) for axis in axes]
    return aligned(
        [*heads, ("", "policy"), *(column.head for column in _SHORT)], body, n_left=len(axes) + 1
    )


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cut(name: str) -> str:
    return name if len(name) <= _NAME_CHARS else name[: _NAME_CHARS - 1] + "~"


def _cells(figures: Figures, columns: Sequence[Column]) -> list[str]:
    return [column.written(column.value(figures)) + " " * bool(column.better) for column in columns]


def _marked(rows: Sequence[Figures], columns: Sequence[Column]) -> list[list[str]]:
    """Cells of all rows, each with room for a mark behind it."""
    cells = [_cells(figures, columns) for figures in rows]
    for index, column in enumerate(columns):
        values = [column.value(figures) for figures in rows]
        known = [value for value in values if value is not None]
        if not column.better or len(known) < len(("one", "another")):
            continue
        best = max(known, key=lambda value: value * column.better)
        if all(_is_near(value, best) for value in known):
            continue
        for row, value in zip(cells, values, strict=True):
            if value is not None and _is_near(value, best):
                row[index] = row[index].rstrip() + BEST
    return cells


def _is_near(value: float, best: float) -> bool:
    return abs(value - best) <= _TIE_RATIO * abs(best)

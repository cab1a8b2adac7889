"""Tables as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def aligned(
    heads: Sequence[tuple[str, str]], body: Sequence[Sequence[str]], *, n_left: int = 1
) -> list[str]:
    """Lines of one width a column, under two of heads; the first ``n_left`` columns begin left, the others end right."""
    rows = [[head[line] for head in heads] for line in (0, 1)]
    rows.extend([*row, *[""] * (len(heads) - len(row))] for row in body)
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column < n_left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(" ".join(cells).rstrip())
    return lines

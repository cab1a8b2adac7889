"""A decision as lines for a terminal of 100 columns: what was decided, the prices, and what they rest on."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COLUMNS: Final = 100
ROWS_MAX: Final = 24
"""So many replicas are shown, unless more are asked for."""
_NAME_MAX: Final = 20
_CUT: Final = "..."


def lines(view: Mapping[str, Any], *, rows_max: int = ROWS_MAX) -> list[str]:
    """The document of one decision, to be read; no line is longer than the terminal but for long names."""
    replicas = view["replicas"]
    shown = replicas[:rows_max]
    names = _names(shown)
    told = [*_title(view), "", *_prices(shown, names), "", *_grounds(shown, names)]
    if len(replicas) > len(shown):
        told.append(f"and {len(replicas) - len(shown)} more replicas")
    return [line.rstrip() for line in told]


def _title(view: Mapping[str, Any]) -> list[str]:
    chosen, home, policy = view["chosen"], view["home"], view["policy"]
    where = f"goes to {_printable(chosen)}" if chosen else "would be refused"
    size = (
        f"{_tokens(view['prompt_tokens'])} prompt, {_tokens(view['output_tokens'])} answer expected"
    )
    since = ""
    if home is not None:
        since = f"home {_printable(home)} for {_age(view['home_age_s'])}"
        if view["session_inflight"]:
            since += f", {view['session_inflight']} in flight there"
    facts = [size, since or "no home yet"]
    if view["awaits_turn"]:
        facts.insert(0, "waits for its turn first: another long prompt is computed there")
    if view["model"]:
        facts.append(f"model {_printable(view['model'])}")
    if view.get("told_by"):
        facts.append(f"last served by {_printable(view['told_by'])}")
    return [
        f"{_printable(view['key'])} {where} ({view['reason']}; policy {policy})",
        *_folded(f"because {view['rule']}", COLUMNS),
        *_folded("; ".join(facts), COLUMNS),
    ]


def _prices(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """Who would cost what, and why the others were passed over."""
    if any(row["price"] is not None for row in rows):
        head = ["replica", "cached", "wait", "prefill", "interf.", "pressure", "total", "why not"]
        parts = ("wait_s", "prefill_s", "interference_s", "pressure_s", "total_s")
        cells = [
            [name, _tokens(row["cached_tokens"])]
            + ["-" if row["price"] is None else _seconds(row["price"][p]) for p in parts]
            for name, row in zip(names, rows, strict=True)
        ]
        n_words = 1
    else:
        head = ["replica", "compared", "cached", "why not"]
        cells = [
            [name, _printable(row["compared"] or "-"), _tokens(row["cached_tokens"])]
            for name, row in zip(names, rows, strict=True)
        ]
        n_words = 2
    return _aligned(head, cells, n_words, [_why(row) for row in rows])


def _why(row: Mapping[str, Any]) -> str:
    return "<- chosen" if row["why_not"] is None else _printable(row["why_not"])


def _grounds(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """What is believed of each, and how old that is."""
    head = ["replica", "state", "backlog", "in flight", "sessions", "live/capacity", "report"]
    head.append("cache heard of")
    cells = [
        [
            name,
            row["state"],
            _seconds(row["backlog_s"]),
            f"{row['inflight']}/{row['inflight_max'] or '-'}",
            f"{row['live_sessions']:,}",
            f"{_tokens(row['live_tokens'])}/{_tokens(row['capacity_tokens'])}",
            _age(row["report_age_s"]),
        ]
        for name, row in zip(names, rows, strict=True)
    ]
    heard = [
        f"{row['belief']['source']} {_age(row['belief']['age_s'])}".removesuffix(" -")
        for row in rows
    ]
    return _aligned(head, cells, 2, heard)


def _aligned(
    head: Sequence[str], cells: Sequence[Sequence[str]], n_words: int, last: Sequence[str]
) -> list[str]:
    """Words to the left, numbers to the right, and a last column that is folded where it is long."""
    n = len(head) - 1
    widths = [max(len(row[i]) for row in (head, *cells)) for i in range(n)]
    told = []
    indent = sum(widths) + 2 * n
    for row, words in zip((head[:n], *cells), (head[n], *last), strict=True):
        padded = [
            cell.ljust(width) if i < n_words else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        first, *more = _folded(words, max(24, COLUMNS - indent))
        told.append("  ".join([*padded, first]))
        told += [" " * indent + line for line in more]
    return told


def _folded(text: str, width: int) -> list[str]:
    """The text in lines of at most so many characters, broken at blanks."""
    told, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            told.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*told, line]


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The replicas' ids; long ones without what all of them end in, or with both ends only, if that tells them apart."""
    whole = [_printable(row["id"]) for row in rows]
    if max(map(len, whole), default=0) <= _NAME_MAX:
        return whole
    ends = zip(*(reversed(name) for name in whole), strict=False)
    behind = sum(1 for _ in takewhile(lambda letters: len(set(letters)) == 1, ends))
    half = (_NAME_MAX - len(_CUT)) // 2
    for short in (
        [name[:-behind] + _CUT if behind > len(_CUT) else name for name in whole],
        [name if len(name) <= _NAME_MAX else name[:half] + _CUT + name[-half:] for name in whole],
    ):
        if len(set(short)) == len(set(whole)) and max(map(len, short)) <= _NAME_MAX:
            return short
    return whole


def _printable(text: str) -> str:
    """Without what would steer the terminal: names are replicas' and clients' own, and may hold anything."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


def _tokens(count: float) -> str:
    if count < 1_000:  # noqa: PLR2004
        return f"{count:.0f}"
    return f"{count / 1e3:.1f}k" if count < 1e6 else f"{count / 1e6:.2f}M"  # noqa: PLR2004


def _seconds(length_s: float) -> str:
    return f"{length_s:.2f} s" if length_s < 99.995 else f"{length_s:,.0f} s"  # noqa: PLR2004


def _age(length_s: float | None) -> str:
    if length_s is None:
        return "-"
    if length_s < 99.5:  # noqa: PLR2004
        return f"{length_s:.1f} s"
    minutes = round(length_s / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.0f} h"  # noqa: PLR2004

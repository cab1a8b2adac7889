"""How the fleet, its sessions and its changes look in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from router.commands.values import in_words, ratio, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import OverflowMethod, RenderableType

_STYLES: Final = {
    "ready": "green",
    "suspect": "yellow",
    "full": "yellow",
    "draining": "cyan",
    "starting": "cyan",
    "not-ready": "yellow",
    "stalled": "red",
    "down": "red",
}


def printable(text: str) -> str:
    """The text without what would steer the terminal: each such character is shown as ``\ufffd``."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


def _text(text: object, *, style: str = "", overflow: OverflowMethod | None = None) -> Text:
    """A cell: names are replicas' and clients' own, and may hold anything."""
    return Text(printable(str(text)), style=style, overflow=overflow)


def fleet_table(fleet: dict[str, Any]) -> RenderableType:
    """All replicas, one a line, and the sums below."""
    rows = fleet["replicas"]
    if not rows:
        return "no replicas are known; `homeport fleet add URL` adds one"
    table = _table(
        ("replica", "state", "source"),
        ("weight", "in flight", "backlog", "sessions", "live", "capacity", "held", "hit", "report"),
    )
    for row in rows:
        table.add_row(
            _text(row["id"]),
            _text(_state(row), style=_STYLES.get(row["state"], "")),
            _text(sources(row)),
            f"{row['weight']:g}",
            f"{row['inflight']}/{_or_none(row['inflight_max'])}",
            in_words(row["backlog_s"]),
            f"{row['live_sessions']:,}",
            tokens(row["live_tokens"]),
            tokens(row["capacity_tokens"]),
            tokens(row["held_tokens"]),
            ratio(row["cached_tokens_total"], row["prompt_tokens_total"]),
            "-" if row["load"] is None else f"{in_words(row['load']['age_s'])} ago",
        )
    return Group(table, _text(_sums(fleet)))


def _sums(fleet: dict[str, Any]) -> str:
    totals, n = fleet["totals"], len(fleet["replicas"])
    ready = sum(row["state"] == "ready" for row in fleet["replicas"])
    return (
        f"{ready} of {n} replicas ready, policy {fleet['policy']}, {fleet['sessions']:,} live sessions; hit ratio"
        f" {ratio(totals['cached_tokens'], totals['prompt_tokens'])} of {totals['requests']:,} requests"
    )


def sources(row: dict[str, Any]) -> str:
    """Who names a replica."""
    names = row.get("sources") or [row["source"]]
    return ", ".join(name if isinstance(name, str) else str(name.get("source")) for name in names)


def _state(row: dict[str, Any]) -> str:
    end = row["drain"]
    if end is None:
        return str(row["state"])
    left = "" if end["left_s"] is None else f"in {in_words(end['left_s'])} at most"
    if not end["remove"] and not left:
        return "draining"
    return f"draining (removed {left or 'when empty'})"


def replica_sheet(row: dict[str, Any], sessions: Sequence[dict[str, Any]]) -> RenderableType:
    """All that is known of one replica, and the most recent of its sessions."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in _flat(row):
        table.add_row(_text(key), _text(_cell(key, value)))
    if not sessions:
        return table
    return Group(
        table, Text(f"\nits {len(sessions)} most recent sessions:"), sessions_table(sessions)
    )


def _flat(row: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
            for number, entry in enumerate(value):
                yield f"{prefix}{key}.{number}", _facts(entry, list(entry))
        else:
            yield f"{prefix}{key}", value


def _cell(key: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, float) and key.endswith("_per_s"):
        return f"{value:,.0f} per s"
    if isinstance(value, float) and key.endswith("_s"):
        return in_words(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def sessions_table(rows: Sequence[dict[str, Any]]) -> RenderableType:
    """Sessions, the most recent first."""
    if not rows:
        return "no sessions"
    table = _table(("session", "home", "pinned to"), ("requests", "prompt", "age", "idle"))
    for row in rows:
        table.add_row(
            _text(row["key"], overflow="fold"),
            _text(row["home"]),
            _text(row["pinned"] or "-"),
            f"{row['requests']:,}",
            tokens(row["prompt_tokens"]),
            in_words(row["age_s"]),
            in_words(row["idle_s"]),
        )
    return table


def session_sheet(view: dict[str, Any]) -> RenderableType:
    """One session: what it is, and what was decided of late with the prices."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in view.items():
        if key != "decisions":
            table.add_row(_text(key), _text(_cell(key, value)))
    decisions = _table(
        ("replica", "reason", "outcome"), ("ago", "prompt", "predicted", "cached", "ttft", "price")
    )
    for row in reversed(view["decisions"]):
        price = row["prices"].get(row["replica"])
        decisions.add_row(
            _text(row["replica"]),
            _text(row["reason"]),
            _text(row["error"] or row["outcome"] or "runs"),
            in_words(-row["at_s"]),
            tokens(row["reported_prompt_tokens"] or row["prompt_tokens"]),
            tokens(row["predicted_cached_tokens"]),
            tokens(row["reported_cached_tokens"]),
            in_words(row["ttft_s"]),
            "-" if price is None else f"{sum(price.values()):.2f} s",
        )
    return Group(table, decisions)


def changes_table(rows: Sequence[dict[str, Any]]) -> RenderableType:
    """What operators changed, newest first."""
    if not rows:
        return "nothing was changed since the router started"
    table = _table(("ago", "change", "of", "from", "to", "who", "why"), ())
    for row in rows:
        before, after = row["before"], row["after"]
        keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        table.add_row(
            in_words(row["age_s"]),
            _text(row["event"]),
            _text(row["replica"] or row["session"] or "-", overflow="fold"),
            *(_text(_facts(facts, keys), overflow="fold") for facts in (before, after)),
            _text(row["who"], overflow="fold"),
            _text(row["why"] or "-", overflow="fold"),
        )
    return table


def _facts(facts: dict[str, Any], keys: Sequence[str]) -> str:
    return ", ".join(f"{key}={_or_none(facts[key])}" for key in keys if key in facts) or "-"


def _or_none(value: object) -> str:
    return "none" if value is None else str(value)


def _table(words: Iterable[str], numbers: Iterable[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in words:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table

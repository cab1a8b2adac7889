"""What the demo shows: a live table on a terminal, plain lines elsewhere. Engine seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from sim.live.fleet_client import Fleet, KnownSession
    from sim.live.stack import Stack
    from sim.live.tally import Summary

_MEGA: Final = 1_000_000
_KEY_CHARS: Final = 24
_KILO: Final = 1_000
_STATE_STYLES: Final = {"ready": "green", "starting": "yellow", "suspect": "yellow"}


@dataclass(frozen=True, slots=True)
class Picture:
    """All that one refresh shows. ``load`` is None where no load runs."""

    stack: Stack
    time_scale: float
    fleet: Fleet
    sessions: list[KnownSession]
    load: Summary | None
    load_inflight: int
    elapsed_s: float


def live_view(picture: Picture) -> Group:
    """The whole screen."""
    return Group(
        Text(f"homeport demo, policy {picture.fleet.policy}, {picture.elapsed_s:.0f} s", "bold"),
        _replica_table(picture.fleet),
        Text(fleet_line(picture)),
        _session_table(picture.sessions),
        Text(how_to(picture.stack), style="cyan"),
    )


def plain_line(picture: Picture) -> str:
    """One line for logs."""
    replicas = " ".join(
        f"{r.id}={r.state}/{r.inflight}/{r.live_sessions}" for r in picture.fleet.replicas
    )
    return f"{picture.elapsed_s:4.0f} s  {fleet_line(picture)}  [{replicas}]"


def fleet_line(picture: Picture) -> str:
    """Requests, hit ratio against its ceiling, TTFT, moves, splits, errors."""
    totals, load = picture.fleet.totals, picture.load
    ceiling = ""
    if load is not None:
        hit_ratio, errors, requests = load.hit_ratio, load.errors, load.requests
        ceiling = f" of {_percent(load.hit_ratio_ceiling)} possible"
        p50_s = load.ttft_s.p50 if load.ttft_s else None
        p99_s = load.ttft_s.p99 if load.ttft_s else None
    else:
        hit_ratio = totals.cached_tokens / totals.prompt_tokens if totals.prompt_tokens else None
        errors, requests = totals.errors, totals.requests
        p50_s = _scaled(totals.ttft_s.p50 if totals.ttft_s else None, picture.time_scale)
        p99_s = _scaled(totals.ttft_s.p99 if totals.ttft_s else None, picture.time_scale)
    return (
        f"{requests} requests, {picture.load_inflight} running, {picture.fleet.sessions} sessions, "
        f"hit ratio {_percent(hit_ratio)}{ceiling}, TTFT p50 {_seconds(p50_s)} p99 "
        f"{_seconds(p99_s)} (engine seconds, {picture.time_scale:g} a wall second), "
        f"{totals.moves} moves, {totals.splits} splits, {totals.retries} retries, {errors} errors"
    )


def how_to(stack: Stack) -> str:
    """How to point an agent at the demo, and how to stop it."""
    return (
        f"export ANTHROPIC_BASE_URL={stack.base_url}\n"
        f"export OPENAI_BASE_URL={stack.base_url}/v1\n"
        f"control API {stack.admin_url}/fleet    stop with Ctrl-C"
    )


def _replica_table(fleet: Fleet) -> Table:
    table = Table(expand=False)
    table.add_column("replica")
    table.add_column("state")
    for name in ("in flight", "sessions at home", "live / capacity", "requests", "hit ratio"):
        table.add_column(name, justify="right")
    for replica in fleet.replicas:
        table.add_row(
            replica.id,
            Text(replica.state, style=_STATE_STYLES.get(replica.state, "red")),
            str(replica.inflight),
            str(replica.live_sessions),
            f"{_tokens(replica.live_tokens)} / {_tokens(replica.capacity_tokens)}",
            str(replica.requests_total),
            _percent(replica.hit_ratio),
        )
    return table


def _session_table(sessions: list[KnownSession]) -> Table:
    table = Table(title="newest sessions", title_justify="left", expand=False)
    table.add_column("session")
    table.add_column("home")
    for name in ("requests", "prompt", "age"):
        table.add_column(name, justify="right")
    for session in sessions:
        table.add_row(
            shortened(session.key),
            session.home or "-",
            str(session.requests),
            _tokens(session.prompt_tokens),
            f"{session.age_s:.0f} s",
        )
    return table


def shortened(key: str) -> str:
    """A key's two ends: sub-agents share the beginning and differ at the end."""
    return key if len(key) <= _KEY_CHARS else f"{key[:11]}...{key[-10:]}"


def _tokens(count: int | None) -> str:
    if count is None:
        return "?"
    if count >= _MEGA:
        return f"{count / _MEGA:.2f}M"
    return f"{count / _KILO:.0f}k" if count >= _KILO else str(count)


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100.0 * ratio:.1f} %"


def _seconds(value_s: float | None) -> str:
    return "-" if value_s is None else f"{value_s:.2f} s"


def _scaled(value_s: float | None, time_scale: float) -> float | None:
    return None if value_s is None else value_s * time_scale

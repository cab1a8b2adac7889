"""What a terminal is shown of the fleet: nothing that steers it, rates as rates, ranks as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from router.commands.fleet_tables import (
    changes_table,
    fleet_table,
    replica_sheet,
    session_sheet,
    sessions_table,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

BAD = "a\x1b[2J\x1b]0;x\x07\u202eb"
SESSION: dict[str, Any] = {
    "key": BAD, "home": BAD, "pinned": BAD, "requests": 1, "prompt_tokens": 5, "age_s": 1.0, "idle_s": 1.0,
}  # fmt: skip
DECISION: dict[str, Any] = {
    "replica": BAD, "reason": BAD, "error": BAD, "outcome": None, "prices": {}, "at_s": -1.0, "prompt_tokens": 5,
    "reported_prompt_tokens": None, "predicted_cached_tokens": 0, "reported_cached_tokens": None, "ttft_s": None,
}  # fmt: skip
CHANGE: dict[str, Any] = {
    "age_s": 1.0, "event": BAD, "replica": BAD, "session": None, "before": {"x": BAD}, "after": {"x": "y"},
    "who": BAD, "why": BAD,
}  # fmt: skip
RANK = {"rank": 0, "running": 3, "used_ratio": 0.5}
ROW: dict[str, Any] = {
    "id": BAD, "state": BAD, "source": BAD, "profile": BAD, "models": [BAD], "weight": 1.0, "inflight": 0,
    "inflight_max": None, "backlog_s": 0.0, "live_sessions": 0, "live_tokens": 0, "capacity_tokens": 1,
    "held_tokens": 0, "cached_tokens_total": 0, "prompt_tokens_total": 0, "drain": None,
    "prefill_tokens_per_s": 12_345.6, "load": {"age_s": 0.1, "ranks": [RANK, RANK | {"rank": 1}]},
}  # fmt: skip
TOTALS = {"cached_tokens": 0, "prompt_tokens": 0, "requests": 0}
FLEET = {"replicas": [ROW], "policy": BAD, "sessions": 0, "totals": TOTALS}


def printed(shown: RenderableType) -> str:
    console = Console(width=400, highlight=False)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


@pytest.mark.parametrize(
    "shown",
    [
        fleet_table(FLEET),
        replica_sheet(ROW, [SESSION]),
        sessions_table([SESSION]),
        session_sheet({"key": BAD, "home": BAD, "decisions": [DECISION]}),
        changes_table([CHANGE]),
    ],
)
def test_what_would_steer_the_terminal_is_replaced(shown: RenderableType) -> None:
    text = printed(shown)
    assert text.replace("\n", "").isprintable()
    assert "a\ufffd[2J\ufffd]0;x\ufffd\ufffdb" in text


def test_a_rate_is_no_duration_and_each_rank_has_a_row() -> None:
    rows = [line.split(None, 1) for line in printed(replica_sheet(ROW, [])).splitlines()]
    shown = {row[0]: row[1].strip() for row in rows}
    assert shown["prefill_tokens_per_s"] == "12,346 per s"
    assert shown["load.ranks.0"] == "rank=0, running=3, used_ratio=0.5"
    assert shown["load.ranks.1"] == "rank=1, running=3, used_ratio=0.5"
    assert shown["load.age_s"] == "0.1 s"

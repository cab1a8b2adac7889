"""What the demo shows."""

from __future__ import annotations

import io

from rich.console import Console

from sim.live import table
from sim.live.fleet_client import Fleet, KnownSession, Replica, Totals, TtftSpread
from sim.live.stack import Stack
from sim.live.tally import Tally

_STACK = Stack("http://127.0.0.1:30000", "http://127.0.0.1:30080")
_FLEET = Fleet(
    policy="home",
    replicas=[
        Replica("127.0.0.1:1", "ready", 2, 9, 812_000, 7_317_000, 151, 1_000, 975),
        Replica("127.0.0.1:2", "down"),
    ],
    sessions=27,
    totals=Totals(420, 1, 2, 3, 4, 1_000, 950, TtftSpread(0.02, 0.012, 0.03, 0.2)),
)


def _picture(*, has_load: bool = False) -> table.Picture:
    return table.Picture(
        stack=_STACK,
        time_scale=10.0,
        fleet=_FLEET,
        sessions=[KnownSession("0f3c", "127.0.0.1:1", 12, 95.0, 61_000), KnownSession("new")],
        load=Tally().summary() if has_load else None,
        load_inflight=2,
        elapsed_s=4.0,
    )


def _shown(picture: table.Picture) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(table.live_view(picture))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_screen_names_replicas_sessions_and_how_to_go_on() -> None:
    shown = _shown(_picture())
    for text in ("127.0.0.1:1", "812k / 7.32M", "97.5 %", "down", "0f3c", "61k", "Ctrl-C"):
        assert text in shown
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:30000\n" in shown.replace(" ", "")
    assert "OPENAI_BASE_URL=http://127.0.0.1:30000/v1" in shown


def test_without_load_the_routers_times_become_engine_seconds() -> None:
    line = table.fleet_line(_picture())
    assert "TTFT p50 0.12 s p99 2.00 s (engine seconds, 10 a wall second)" in line
    assert "hit ratio 95.0 %," in line
    assert "3 moves, 4 splits" in line


def test_before_the_first_answer_there_are_dashes() -> None:
    picture = _picture(has_load=True)
    assert "hit ratio - of - possible, TTFT p50 - p99 -" in table.fleet_line(picture)
    assert "127.0.0.1:2=down/0/0" in table.plain_line(picture)


def test_sub_agents_can_be_told_apart() -> None:
    parent = "6289c00d-12a6-45c1-89a2-0d5c7d4c2b11"
    one, two = (table.shortened(f"{parent}/agent-{n}-abcdef{n}") for n in (1, 2))
    assert one != two
    assert len(one) == 24
    assert table.shortened("ses_1") == "ses_1"

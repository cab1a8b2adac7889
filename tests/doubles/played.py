"""Plays workloads without a fleet: every request is answered after a time of one's own."""

from __future__ import annotations

import heapq
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sim.workload.traces.builder import Traits, WorkloadBuilder
from sim.workload.traces.model import NO_PARENT, Pace, RecordedTurn
from sim.workload.traces.tree import Path, Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sim.workload.play.turns import Play, PlayedPrompt, PlayedTurn
    from sim.workload.traces.model import RecordedWorkload

BLOCK = 24


class Sent(NamedTuple):
    """A request that was sent; its prompt has ``pages`` of its own, cut out of ``path_pages``."""

    at_s: float
    turn: PlayedTurn
    prompt: PlayedPrompt
    path_pages: array[int]

    @property
    def lane(self) -> int:
        """On which lane of a closed loop."""
        return int(self.turn.session_key.split("-")[-2])

    @property
    def content(self) -> tuple[object, ...]:
        """All of it but its time and what others did before it."""
        turn, prompt = self.turn, self.prompt
        columns = (prompt.pages, prompt.output_pages, prompt.chain, prompt.ends_bytes)
        sizes = (turn.prompt_tokens, turn.output_tokens, prompt.head_segments)
        return (turn.session_key, turn.kind, *sizes, *map(tuple, columns))


def play_all(
    play: Play,
    took_s: Callable[[PlayedTurn], float] = lambda _: 1.0,
    *,
    page_tokens: int = 16,
    n_max: int = 10_000,
    on_ended: Callable[[Sent], None] = lambda _: None,
) -> Iterator[Sent]:
    """Requests in the order of their times, until none is left or so many were sent."""
    waiting: list[tuple[float, int, PlayedTurn, Sent | None]] = []
    serial = 0
    newest_s = 0.0
    for due in play.arrivals():
        assert due.at_s >= newest_s
        newest_s = due.at_s
        heapq.heappush(waiting, (due.at_s, serial, due.turn, None))
        serial += 1
    while waiting and n_max:
        now_s, _, turn, sent = heapq.heappop(waiting)
        if sent is None:
            prompt = play.prompt(turn)
            pages = prompt.pages[: turn.prompt_tokens // page_tokens]
            sent = Sent(now_s, turn, replace(prompt, pages=pages), prompt.pages)
            n_max -= 1
            yield sent
            heapq.heappush(waiting, (now_s + took_s(turn), serial, turn, sent))
            serial += 1
            continue
        on_ended(sent)
        for due in play.ended(turn, now_s):
            assert due.at_s >= now_s
            heapq.heappush(waiting, (due.at_s, serial, due.turn, None))
            serial += 1


class Row(NamedTuple):
    """A turn of an invented session: ids of its blocks, and tokens behind the last."""

    ids: Sequence[int]
    tail_tokens: int = 0
    gap_s: float = 5.0
    rest_s: float | None = None


class Drawn(NamedTuple):
    """An invented session; ``parent`` by its place in the list."""

    rows: Sequence[Row]
    parent: int = NO_PARENT
    after_turn: int = -1
    delay_s: float = 0.5
    is_joined: bool = False
    head_tokens: int = 0
    name: str = ""


def workload_of(
    sessions: Sequence[Drawn], *, has_clock: bool = False, block: int = BLOCK
) -> RecordedWorkload:
    """Sessions whose blocks mean the same in all of them.

    Turn ``i`` of the workload answers ``i + 1`` tokens, which tells turns apart.
    """
    builder = WorkloadBuilder(
        Traits("invented", Pace.CLOSED, block, has_clock=has_clock, has_sessions=True)
    )
    scope = Scope(builder.tree)
    names: list[str] = []
    depths = range(0, 1 << 40, block)
    for number, drawn in enumerate(sessions):
        name = drawn.name or f"s{number}"
        if drawn.parent != NO_PARENT and not drawn.name:
            name = f"{names[drawn.parent]}/{number}"
        names.append(name)
        session = builder.session(
            name,
            parent=drawn.parent,
            after_turn=drawn.after_turn,
            delay_s=drawn.delay_s,
            is_joined=drawn.is_joined,
            head_tokens=drawn.head_tokens,
        )
        at_s = 0.0
        for step, row in enumerate(drawn.rows):
            path = scope.place(Path(), array("Q", row.ids), depths)
            at_s += row.gap_s
            turn = RecordedTurn(
                at_s=at_s,
                gap_s=row.gap_s if step else 0.0,
                rest_s=row.rest_s,
                prompt_tokens=max(1, len(row.ids) * block + row.tail_tokens),
                branch=path.branch,
                named_tokens=len(row.ids) * block,
                output_tokens=builder.n_turns + 1,
                model="",
                latency_s=None,
                ttft_s=None,
            )
            builder.turn(session, turn)
    return builder.workload()

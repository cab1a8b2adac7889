"""Mutated traffic through a front door in memory, checked by a reader that is not ours (h11)."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Final

import h11

from router.edge.bounds.limits import EdgeLimits
from tests.doubles.memory_wire import Link, MemoryWire
from tests.doubles.mutants import mark, marks, mutated, pieces, sound_answer, sound_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect

LIMITS: Final = EdgeLimits(
    body_bytes_max=100_000,
    header_bytes_max=16_384,
    first_event_s=100.0,
    answer_s=100.0,
    head_hold_s=50.0,
    stream_idle_s=100.0,
)
_SWEEPS_MAX: Final = 60
_SWEEP_S: Final = 40.0
_AT_ONCE: Final = 4
_READ_AGAIN: Final = 4
"""One answer in so many is read by h11 too."""


class Asked:
    """One client connection: what it sends, and whose marks it may see."""

    def __init__(self, link: Link, parts: list[bytes], own: set[int]) -> None:
        self.link = link
        self.parts = parts
        self.own = own
        self.got = bytearray()
        self.has_left = False


class MutationRun:
    """``n_requests`` from one seed; either the requests are mutated or the answers to sound ones."""

    def __init__(self, table: Mapping[str, Dialect], seed: int, *, answers: bool) -> None:
        self._dice = random.Random(f"{seed}-{answers}")
        self._wire = MemoryWire(table, LIMITS)
        self._mutates_answers = answers
        self._number = 0
        self._asked: list[Asked] = []
        self._heard: dict[Link, bytearray] = {}
        self.seen: Counter[str] = Counter()

    async def run(self, n_requests: int) -> None:
        """Run, and check; a failed check names what was sent."""
        while self._number < n_requests:
            await self._group()

    async def _group(self) -> None:
        dice, wire = self._dice, self._wire
        wire.ready()
        self._asked = [self._ask() for _ in range(_AT_ONCE)]
        waiting = list(self._asked)
        try:
            while waiting:
                asked = dice.choice(waiting)
                if asked.parts and asked.link.is_open:
                    asked.link.feed(asked.parts.pop(0))
                else:
                    waiting.remove(asked)
                    if dice.randrange(4) == 0:
                        asked.has_left = True
                        asked.link.end()
                await self._serve()
            await self._outlive()
            self._check()
        except Exception as fault:
            sent = [bytes(asked.got) for asked in self._asked]
            raise AssertionError(f"{self.sent}\n{sent}") from fault

    def _ask(self) -> Asked:
        dice, own, sound = self._dice, set[int](), b""
        for _ in range(dice.randrange(1, 3)):
            self._number += 1
            own.add(self._number)
            sound += sound_request(dice, mark(self._number))
        data = sound if self._mutates_answers or dice.randrange(8) == 0 else mutated(dice, sound)
        if len(self._asked) == _AT_ONCE:
            self._asked, self.sent = [], []
        self.sent = [*getattr(self, "sent", []), data][-_AT_ONCE:]
        return Asked(self._wire.connect(), pieces(dice, data), own)

    async def _serve(self) -> bool:
        """One turn: the replicas answer what has come, the clients get what was said."""
        wire, dice = self._wire, self._dice
        has_moved = await wire.turn()
        for link in list(wire.pool.links):
            heard = self._heard.setdefault(link, bytearray())
            heard += link.take()
            if heard and link.is_open:
                own = self._read(bytes(heard))
                has_moved = has_moved or own is not None
                if own is not None:
                    heard.clear()
                    answer = sound_answer(dice, own)
                    if self._mutates_answers and dice.randrange(8):
                        answer = mutated(dice, answer)
                        if dice.randrange(6) == 0:  # nobody asked for a second one
                            answer += sound_answer(dice, own)
                    for part in pieces(dice, answer):
                        link.feed(part)
                    if dice.randrange(3) == 0 or b"content-length" not in answer:
                        link.end()
            if not link.is_open:
                self._heard.pop(link, None)
        for asked in self._asked:
            asked.got += asked.link.take()
        return has_moved

    def _read(self, data: bytes) -> bytes | None:
        """A request as h11 reads it; answers a mark of it, None if it is not whole."""
        reader = h11.Connection(h11.SERVER)
        reader.receive_data(data)
        request = reader.next_event()
        if request is h11.NEED_DATA:
            return None
        assert isinstance(request, h11.Request)
        names = [name for name, _ in request.headers]
        assert names.count(b"content-length") == names.count(b"host") == 1
        assert b"transfer-encoding" not in names
        assert b"connection" not in names
        while isinstance(event := reader.next_event(), h11.Data):
            pass
        if event is h11.NEED_DATA:
            return None
        assert isinstance(event, h11.EndOfMessage)
        assert reader.trailing_data == (b"", False), "bytes behind a request"
        found = marks(data)
        owners = [asked for asked in self._asked if asked.own & found]
        assert len(owners) <= 1, "marks of two clients in one request"
        assert found <= (owners[0].own if owners else set()), "a mark of an earlier client"
        self.seen["forwarded"] += 1
        return mark(min(found)) if found else b"none"

    async def _outlive(self) -> None:
        """Let every time-out pass: nobody may be left waiting."""
        wire = self._wire
        await self._settle()
        for _ in range(_SWEEPS_MAX):
            if not wire.clients:
                break
            wire.clock.advance(_SWEEP_S)
            for connection in list(wire.door.connections):
                connection.sweep(wire.clock())
            await self._settle()
        wire.pool.sweep(wire.clock() + _SWEEP_S)
        await wire.turn()

    async def _settle(self) -> None:
        """Until nothing moves any more."""
        while await self._serve():
            pass

    def _check(self) -> None:
        left = self._wire.leftovers()
        assert not any(left.values()), left
        for asked in self._asked:
            got = bytes(asked.got)
            assert marks(got) <= asked.own, "another client's mark in an answer"
            if got:
                assert got.startswith(b"HTTP/1.1 "), got[:40]
                self.seen[got[9:12].decode()] += 1
                if self._dice.randrange(_READ_AGAIN) == 0:
                    self._read_answers(got)
            else:
                self.seen["nothing"] += 1

    def _read_answers(self, data: bytes) -> None:
        """Answers as h11 reads them: each whole, but the last where its client may not see its end."""
        while data:
            reader = h11.Connection(h11.CLIENT)
            reader.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
            reader.send(h11.EndOfMessage())
            reader.receive_data(data)
            reader.receive_data(b"")
            while not isinstance(event := reader.next_event(), h11.EndOfMessage):
                assert event is not h11.NEED_DATA, "an answer without its end"
                assert event is not h11.PAUSED
                if isinstance(event, h11.ConnectionClosed):
                    return  # interim answers only: the client had left
            data = reader.trailing_data[0]

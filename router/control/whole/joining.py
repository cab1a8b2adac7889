"""How a new worker learns what its siblings know: what operators and registrations said, and all sessions."""

from __future__ import annotations

import asyncio
import logging
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web

from router.control.api.changes import Change
from router.control.whole.calls import REJOIN, Calls, SiblingAway
from router.state.members.roster import Standing
from router.state.shared.feed import MESSAGE_BYTES_MAX, heard, said
from router.state.shared.values import packed, told
from router.tasks import spawn
from router.workers.board import Stage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from router.control.api.changes import Changes
    from router.core import RouterCore
    from router.state.members.roster import Roster
    from router.workers.board import Row
    from router.workers.place import Place

_log: Final = logging.getLogger("homeport.workers")

STANDING: Final = "/worker/standing"
SESSIONS: Final = "/worker/sessions"
_PINS_A_TIME: Final = 200
_KEY_MAX: Final = 512
_LENGTH: Final = struct.Struct("<I")
_JOIN_S_MAX: Final = 10.0
_AGAIN_S: Final = 5.0
"""Between two times that a sibling is asked for all sessions, because words of it were lost."""


class Acts(msgspec.Struct, frozen=True):
    """What does not say itself again."""

    standing: Standing
    wishes: list[tuple[str, float, int | None]]
    changes: list[Change]


_decode: Final = msgspec.msgpack.Decoder(Acts).decode


@dataclass(slots=True)
class Known:
    """What there is to tell and to learn."""

    core: RouterCore
    roster: Roster
    changes: Changes
    now_s: Callable[[], float]
    wall_s: Callable[[], float]


class Joining:
    """Tells siblings what is known here, and learns what they know."""

    def __init__(self, place: Place, known: Known) -> None:
        self._place = place
        self._known = known
        self._calls = Calls(place)
        self._asked_s: dict[int, float] = {}

    @property
    def routes(self) -> list[web.RouteDef]:
        """What siblings may ask."""
        return [
            web.get(STANDING, self._tell_standing),
            web.get(SESSIONS, self._tell_sessions),
            web.post(REJOIN, self._rejoin),
        ]

    async def join(
        self, *, with_sessions: bool, further: Callable[[Row], Awaitable[None]] | None = None
    ) -> None:
        """Learn from the oldest sibling that answers; with none, or none that does, begin without."""
        for row in self._place.siblings(Stage.READY):
            try:
                async with asyncio.timeout(_JOIN_S_MAX):
                    said = await self._calls.ask(row, "GET", STANDING)
                    self._adopt(said.body)
                    n = await self._learn(row) if with_sessions else 0
                    if further is not None:
                        await further(row)
            except (SiblingAway, TimeoutError, msgspec.MsgspecError) as failure:
                _log.warning("worker-unheard what=join reason=%r", str(failure))
                continue
            _log.info("worker-joined from=%d sessions=%d", row.serial, n)
            return

    def missed(self, serial: int) -> None:
        """Words of a sibling were lost: ask it for all sessions, now and then at most."""
        now_s = self._known.now_s()
        if now_s - self._asked_s.get(serial, -_AGAIN_S) < _AGAIN_S:
            return
        self._asked_s = {s: at_s for s, at_s in self._asked_s.items() if now_s - at_s < _AGAIN_S}
        self._asked_s[serial] = now_s
        _ = spawn(self._catch_up(serial), name="catch-up")

    async def _catch_up(self, serial: int) -> None:
        await asyncio.sleep(_AGAIN_S / 5)  # more may be lost while a sibling is that busy
        for row in self._place.siblings(Stage.READY, Stage.LEAVING):
            if row.serial == serial:
                try:
                    n = await self._learn(row)
                except SiblingAway as away:
                    _log.warning("worker-unheard what=sessions reason=%r", str(away))
                else:
                    _log.info("worker-caught-up from=%d sessions=%d", serial, n)

    # What is learned

    def _adopt(self, body: bytes) -> None:
        known, acts = self._known, _decode(body)
        known.roster.adopt(acts.standing, known.now_s())
        for replica_id, weight, inflight_max in acts.wishes:
            wishes, replica = known.core.fleet.wishes, known.core.fleet.get(replica_id)
            wishes.weigh(replica_id, weight)
            wishes.limit(replica_id, inflight_max)
            if replica is not None:
                known.core.fleet.follow_wish(replica)
        known.changes.adopt(acts.changes)

    async def _learn(self, row: Row) -> int:
        """All sessions that a sibling knows; answers how many."""
        n, data = 0, bytearray()
        async for chunk in self._calls.chunks(row, SESSIONS, _JOIN_S_MAX):
            data += chunk
            while len(data) >= _LENGTH.size:
                length = _LENGTH.unpack_from(data)[0]
                if length > MESSAGE_BYTES_MAX:
                    raise SiblingAway(f"worker {row.serial}: speaks another language")
                if len(data) < _LENGTH.size + length:
                    break
                n += self._learned(bytes(data[_LENGTH.size : _LENGTH.size + length]), row)
                del data[: _LENGTH.size + length]
        return n

    def _learned(self, data: bytes, row: Row) -> int:
        message, known = heard(data), self._known
        if message is None:
            return 0
        now_s, wall_s, pins = known.now_s(), known.wall_s(), known.core.pins
        for key, value in message.pins:
            pin = pins.get(key)
            home_id = None if pin is None else pin.home_id
            name = f"worker-{row.serial}"
            word = told(key, value, wall_s=wall_s, home_id=home_id, told_by=name)
            at_s = now_s - word.age_s  # its last use; who is idle does not become live by this
            if pin is not None:
                at_s = max(at_s, pin.used_s)
            if word.fixed_for_s is not None:
                word = replace(word, fixed_for_s=word.fixed_for_s + now_s - at_s)
            known.core.peers.pinned(word, at_s)
        return len(message.pins)

    # What is told

    async def _rejoin(self, _: web.Request) -> web.Response:
        await self.join(with_sessions=False)
        return web.Response(status=204)

    async def _tell_standing(self, _: web.Request) -> web.Response:
        known = self._known
        wishes = known.core.fleet.wishes.all()
        acts = Acts(
            known.roster.standing(known.now_s()),
            [(key, wish.weight, wish.inflight_max) for key, wish in wishes],
            known.changes.recent(1_000)[::-1],
        )
        return web.Response(body=msgspec.msgpack.encode(acts))

    async def _tell_sessions(self, request: web.Request) -> web.StreamResponse:
        known = self._known
        answer = web.StreamResponse()
        await answer.prepare(request)
        newest = known.core.pins.recent(len(known.core.pins))
        pins = [pin for pin in reversed(newest) if len(pin.key) <= _KEY_MAX]
        for n in range(0, len(pins), _PINS_A_TIME):
            now_s, wall_s = known.now_s(), known.wall_s()
            rows = [
                (pin.key, packed(pin, now_s=now_s, wall_s=wall_s))
                for pin in pins[n : n + _PINS_A_TIME]
            ]
            data = said(self._place.name, 1, ttl_s=1.0, loads=[], pins=rows)
            await answer.write(_LENGTH.pack(len(data)) + data)
            await asyncio.sleep(0)  # requests go first
        await answer.write_eof()
        return answer

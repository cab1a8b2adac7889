"""The link to the other routers: says what is news here, hears what others say, and asks for sessions.

No request ever waits for it but for a session that is not known here, and then for a few milliseconds. While
the store is away this router goes on with what it knows; one line of the log says so, and one that it is back.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from router.clock import epoch_s
from router.control.sharing.readings import Readings
from router.obs.sharing import Reading
from router.state.shared.desk import Desk, DeskParameters
from router.state.shared.values import pin_key, unpacked
from router.stores.base import StoreError, Trouble
from router.tasks import spawn

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from router.control.sharing.table import FleetTable
    from router.core import RouterCore
    from router.dialect.base import PromptFacts
    from router.obs.sharing import SharingCounts
    from router.state.fleet.replica import ReplicaSpec
    from router.state.sessions.pins import Pin
    from router.state.shared.desk import Row, Word
    from router.state.shared.orders import Wish
    from router.stores.base import Store

_log = logging.getLogger("homeport.sharing")

_AGAIN_S: Final = (0.3, 1.0)
"""Before a store that is away is tried again, drawn from these."""

_PARTLY: Final = (Trouble.FULL, Trouble.READ_ONLY)
"""It passes words on, and tells what it knows."""

_JITTER: Final = 0.1
_TRIES: Final = 4
_NOBODY: Final = "0" * 32
_HURRY_S: Final = 0.02


@dataclass(slots=True, frozen=True)
class LinkParameters:
    """``read_s``: how long a request waits for its session; ``publish_s``: between two words.

    ``session_ttl_s``: how long the store keeps a session.
    """

    read_s: float = 0.003
    publish_s: float = 0.2
    session_ttl_s: float = 14_400.0
    desk: DeskParameters = field(default_factory=DeskParameters)


class Link:
    """One router's link; the edge asks it for sessions, the store tells it what is said."""

    def __init__(
        self,
        core: RouterCore,
        store: Store,
        counts: SharingCounts,
        *,
        router: str,
        now_s: Callable[[], float],
        dice: random.Random,
        parameters: LinkParameters | None = None,
        wall_s: Callable[[], float] = epoch_s,
    ) -> None:
        self._p = parameters or LinkParameters()
        self._store = store
        self._counts = counts
        self._now_s = now_s
        self._wall_s = wall_s
        self._dice = dice
        self.desk = Desk(core, router, dice, self._p.desk)
        counts.desk, counts.commands = self.desk.counts, lambda: store.n_commands
        self._readings = Readings(
            store,
            counts,
            wait_s=self._p.read_s,
            now_s=now_s,
            dice=dice,
            found=self._found,
            placed=self._placed,
        )
        self._hurry = asyncio.Event()
        self.table: FleetTable | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._trouble: Trouble | None = None
        self._is_whole = False  # the store has had all that is to be stored
        self._said_s = -inf

    async def start(self) -> None:
        """Begin to listen and to speak; does not wait for the store."""
        self.desk.part(is_lost=False)
        await self._store.start(self)
        self._ticking = spawn(self._tick(), name="sharing")

    async def stop(self) -> None:
        """Say a last word, if anybody hears it, and let go."""
        ticking, self._ticking = self._ticking, None
        if ticking is not None:
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking
        if self._trouble is None:
            await self._speak()
        await self._store.stop()

    @property
    def is_away(self) -> bool:
        """The store answers nothing."""
        return self._trouble is not None and self._trouble not in _PARTLY

    # Used by the control API

    async def registered(self, spec: ReplicaSpec) -> bool:
        """A replica registered here; False if the others do not know."""
        return self.table is not None and await self.table.registered(spec)

    def renewed(self, replica_id: str) -> None:
        """A replica's heartbeat came here."""
        if self.table is not None:
            self.table.renewed(replica_id)

    async def ordered(
        self,
        replica_id: str,
        wish: Wish,
        *,
        leaves: bool = False,
        deadline_s: float | None = None,
    ) -> bool:
        """An operator wants this of a replica; False if the others do not know."""
        return self.table is not None and await self.table.ordered(
            replica_id, wish, leaves=leaves, deadline_s=deadline_s
        )

    async def changed(self, session_key: str, change: Callable[[], Pin | None]) -> bool:
        """Let an operator's change of a session count here and at all others; False if those do not know.

        It is made here whatever becomes of that, upon what the store knows of the session.
        """
        for _ in range(_TRIES):
            try:
                [data] = await self._store.read([pin_key(session_key)])
                value = None if data is None else unpacked(data)
                if data is not None:
                    self._found(session_key, data)
                pin = change()
                if pin is None:
                    return True
                row = self.desk.row(pin, self._now_s(), self._wall_s())
                expected = None if value is None else value.version
                ttl_s = self._p.session_ttl_s
                if await self._store.swap(row, expected=expected, ttl_s=ttl_s) is None:
                    self._hurry.set()
                    return True
            except StoreError as error:
                change()
                _log.warning(
                    "not-shared session=1 why=%s (it counts at this router)", error.trouble
                )
                return False
        return False

    # Used by the edge

    def ask(self, facts: PromptFacts, then: Callable[[], None]) -> bool:
        """Ask for the session of a request that is not known well here; True if ``then`` is called, soon."""
        key = self.desk.wanted(facts)
        if key is None:
            return False
        if self.is_away:
            self._counts.readings[Reading.SKIPPED] += 1
            return False
        return self._readings.ask(facts.session_key, key, then)

    def _found(self, session_key: str, data: bytes) -> None:
        self.desk.found(session_key, data, self._now_s(), self._wall_s())

    def _placed(self) -> None:
        """A session that nobody knew may have a home now: its next turn may come to another router, and soon."""
        self._hurry.set()

    # Told by the store

    def on_message(self, data: bytes) -> None:
        """A router said something."""
        self.desk.hear(data, self._now_s(), self._wall_s())

    def on_listening(self) -> None:
        """What others say is heard from now on."""
        self.desk.listen(self._now_s())
        if self.table is not None:
            self.table.is_stale = True

    def on_deaf(self, error: StoreError) -> None:
        """What others say is not heard."""
        self.desk.is_deaf = True
        self._counts.troubles[error.trouble] += 1

    # What is said

    async def _tick(self) -> None:
        try:  # the first request that asks finds a connection open, though one is in use
            await asyncio.gather(*[self._store.read([_NOBODY]) for _ in range(2)])
        except StoreError as error:
            self._counts.troubles[error.trouble] += 1
            self._note(error)
        else:
            self._note(None)
        while True:
            if self.is_away:
                self.desk.drop()
                if self.table is not None:
                    self.table.hears_nobody()
                wait_s = self._dice.uniform(*_AGAIN_S)
            else:
                wait_s = self._p.publish_s * (1.0 + _JITTER * (self._dice.random() - 0.5))
            await self._wait(wait_s)
            try:
                await self._speak()
            except Exception:  # noqa: BLE001 - the next word may be better
                self._is_whole = False
                _log.exception("sharing-failed")

    async def _wait(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._hurry.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_HURRY_S)  # for those that come at the same time
        self._hurry.clear()

    async def _speak(self) -> None:
        """Say and store what is news; after trouble, all there is to store."""
        word = self.desk.word(self._now_s(), self._wall_s())
        try:
            was_whole = self._is_whole
            if word.message is not None:
                await self._say(word)
            if self.table is not None and not self.is_away:
                await self.table.follow(is_whole=was_whole)
            if word.rows:
                await self._write(word.rows)
        except StoreError as error:
            self._counts.troubles[error.trouble] += 1
            self._is_whole = False
            self._note(error)
        else:
            if word.message is not None or word.rows:
                self._note(None)

    async def _say(self, word: Word) -> None:
        assert word.message is not None, "there is something to say"
        ttl_s, before_s = self.desk.parameters.ttl_s, self._said_s
        said_s = self._now_s()
        was_there = await self._store.say(self.desk.router, word.vector, word.message, ttl_s=ttl_s)
        self._said_s = said_s
        is_emptied = not was_there and said_s - before_s < ttl_s / 2
        if is_emptied:
            self.desk.part()
        if is_emptied or not self._is_whole:
            self._is_whole = True
            self.desk.heal(said_s)

    async def _write(self, rows: list[Row]) -> None:
        stood = await self._store.write(rows, ttl_s=self._p.session_ttl_s)
        for row, newer in zip(rows, stood, strict=True):
            if newer is not None:
                self.desk.refused(row, newer, self._now_s(), self._wall_s())

    def _note(self, error: StoreError | None) -> None:
        """Let the log know once that there is trouble, of another kind, or no more."""
        trouble = None if error is None else error.trouble
        if trouble is None:
            self.desk.settle(self._now_s())
        elif trouble in _PARTLY:
            self.desk.reach()
        if trouble is self._trouble:
            return
        before, self._trouble = self._trouble, trouble
        self._counts.trouble = "" if trouble is None else trouble.value
        is_known = before is not None and (before in _PARTLY) == (trouble in _PARTLY)
        if error is not None:
            _log.log(
                logging.DEBUG if is_known else logging.WARNING,
                "store-trouble what=%s said=%s (requests go on with what this router knows)",
                error.trouble.value,
                " ".join(str(error).split())[:200] or "-",
            )
        elif before is not None:
            _log.warning("store-back after=%s", before.value)

"""Sessions that requests wait for: asked of the store together, for a few milliseconds at most."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from router.control.sharing.breaker import Breaker
from router.obs.sharing import Reading
from router.stores.base import StoreError
from router.tasks import spawn

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from router.obs.sharing import SharingCounts
    from router.stores.base import Store

_log = logging.getLogger("homeport.sharing")

_AT_ONCE_MAX: Final = 8
"""Questions under way; a store that takes longer than that is not asked more."""

_KEYS_MAX: Final = 256

_LAG_S: Final = 0.000_5
_GRACE_S: Final = 0.001


@dataclass(slots=True, eq=False)
class _Waiter:
    """One request that waits; ``then`` is called once."""

    then: Callable[[], None]
    asked_s: float
    is_over: bool = False


class Readings:
    """Asks a store for sessions; ``found`` is told of each that it knows, in time or not.

    What is asked for within one turn of the event loop is one question. ``placed`` is called when a request
    has gone on.
    """

    def __init__(
        self,
        store: Store,
        counts: SharingCounts,
        *,
        wait_s: float,
        now_s: Callable[[], float],
        dice: random.Random,
        found: Callable[[str, bytes], None],
        placed: Callable[[], None],
    ) -> None:
        self._store = store
        self._counts = counts
        self._wait_s = wait_s
        self._now_s = now_s
        self._found = found
        self._placed = placed
        self._breaker = Breaker(dice)
        self._n_under_way = 0
        self._asked: dict[str, tuple[str, list[_Waiter]]] = {}

    def ask(self, session_key: str, key: str, then: Callable[[], None]) -> bool:
        """Ask for a session; True if ``then`` is called as soon as it was told of, or the wait is over."""
        now_s = self._now_s()
        is_busy = self._n_under_way >= _AT_ONCE_MAX or len(self._asked) >= _KEYS_MAX
        if is_busy or not self._breaker.may_wait(now_s):
            self._counts.readings[Reading.SKIPPED] += 1
            return False
        loop = asyncio.get_running_loop()
        waiter = _Waiter(then, now_s)
        if not self._asked:
            loop.call_soon(self._send)
        self._asked.setdefault(session_key, (key, []))[1].append(waiter)
        loop.call_later(self._wait_s, self._late, waiter)
        return True

    def _send(self) -> None:
        asked, self._asked = self._asked, {}
        _ = spawn(self._read(asked), name="sharing-read")

    async def _read(self, asked: dict[str, tuple[str, list[_Waiter]]]) -> None:
        self._n_under_way += 1
        try:
            values = await self._store.read([key for key, _ in asked.values()])
        except StoreError as error:
            self._counts.troubles[error.trouble] += 1
            values = [None] * len(asked)
        finally:
            self._n_under_way -= 1
        for (session_key, (_, waiters)), value in zip(asked.items(), values, strict=True):
            if value is not None:
                self._found(session_key, value)
            for waiter in waiters:
                self._end(waiter, Reading.NOTHING if value is None else Reading.FOUND)

    def _late(self, waiter: _Waiter, *, is_last: bool = False) -> None:
        """The wait is over. If the loop itself was busy that long, what has come is read first."""
        lag_s = self._now_s() - waiter.asked_s - self._wait_s
        if lag_s > _LAG_S and not (is_last or waiter.is_over):
            last = partial(self._late, waiter, is_last=True)
            asyncio.get_running_loop().call_later(_GRACE_S, last)
        else:
            self._end(waiter, Reading.LATE)

    def _end(self, waiter: _Waiter, how: Reading) -> None:
        if waiter.is_over:
            return
        waiter.is_over = True
        now_s = self._now_s()
        if how is Reading.LATE:
            self._breaker.late(now_s)
        else:
            self._breaker.came()
        self._counts.readings[how] += 1
        self._counts.read.add(now_s - waiter.asked_s)
        try:
            waiter.then()
        except Exception:  # noqa: BLE001 - one request's fault is not the others'
            _log.exception("request-failed after a session was asked for")
        self._placed()

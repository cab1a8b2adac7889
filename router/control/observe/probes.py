"""Asking the replicas how they are, and what: a watch for each, so that none delays another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from router.control.observe.asking import Surroundings
from router.control.observe.watch import Watch
from router.lookup import Lookups
from router.obs.probes import ProbeCounts
from router.tasks import spawn

if TYPE_CHECKING:
    import random
    import ssl
    from collections.abc import Callable

    from router.control.observe.asking import DescribedListener
    from router.core import RouterCore

_TIMEOUT_S: Final = 2.0
_START_S: Final = 5.0
"""A start waits so long for the first answers; who has not answered then goes on being asked."""


class Probes:
    """Keeps one watch for each replica of the fleet."""

    def __init__(
        self,
        core: RouterCore,
        *,
        interval_s: float,
        now_s: Callable[[], float],
        dice: random.Random,
        describe_s: float = 30.0,
        health_s: float = 15.0,
        timeout_s: float | None = None,
        api_key: str | None = None,
        tls: ssl.SSLContext | None = None,
        counts: ProbeCounts | None = None,
        on_described: DescribedListener | None = None,
        lookups: Lookups | None = None,
    ) -> None:
        """``describe_s``: how often a replica is asked what it serves; adapters come and go.

        ``timeout_s`` is for one question, None for two intervals, at most 2 s.
        """
        self._around = Surroundings(
            core=core,
            now_s=now_s,
            dice=dice,
            counts=ProbeCounts() if counts is None else counts,
            interval_s=interval_s,
            describe_s=describe_s,
            health_s=health_s,
            timeout_s=min(_TIMEOUT_S, 2 * interval_s) if timeout_s is None else timeout_s,
            api_key=api_key,
            tls=tls,
            on_described=on_described,
            lookups=lookups or Lookups(),
        )
        self._watches: dict[str, tuple[Watch, asyncio.Task[None]]] = {}

    async def start(self) -> None:
        """Ask every known replica once, then go on in the background."""
        self.follow_membership()
        begun = [watch.begun for watch, _ in self._watches.values()]
        if begun:
            await asyncio.wait(begun, timeout=_START_S)

    async def stop(self) -> None:
        """End all asking."""
        tasks = [task for _, task in self._watches.values()]
        self._watches.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._around.feeds.close()

    def follow_membership(self) -> None:
        """Start watching replicas that joined, stop watching those that left."""
        known = {replica.replica_id for replica in self._around.core.fleet.replicas()}
        for replica_id in self._watches.keys() - known:
            self._watches.pop(replica_id)[1].cancel()
        for replica_id in known:
            if replica_id not in self._watches or self._watches[replica_id][1].done():
                watch = Watch(self._around, replica_id)
                task = spawn(watch.run(), name=f"probe {replica_id}")
                self._watches[replica_id] = watch, task

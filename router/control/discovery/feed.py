"""What every source shares: its way to the roster, how it fares, and when it tries again."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection

    from router.obs.sources import SourceCounts, SourceHealth
    from router.state.members.roster import Offer, Roster, Source

_log = logging.getLogger("homeport.discovery")
OFFERS_MAX: Final = 2_000
"""Replicas that one source may name. So many that join at once hold up the event loop for some 70 ms."""


@dataclass(slots=True, frozen=True)
class Outlet:
    """Where sources tell what they found, and what they need to do so.

    ``on_join`` is called after a replica joined the fleet.
    """

    roster: Roster
    counts: SourceCounts
    now_s: Callable[[], float]
    on_join: Callable[[], None]
    dice: random.Random


class Feed:
    """One source, or one part of it: what it says goes to the roster, how it fares to the metrics.

    ``name`` is what logs call it.
    """

    def __init__(self, source: Source, name: str, outlet: Outlet) -> None:
        self.source = source
        self._name = name
        self._outlet = outlet
        self._health: SourceHealth = outlet.counts.begin(source.value)
        self._n_said: int | None = None

    def say(self, offers: Collection[Offer], *, fault: str = "") -> None:
        """The source was read: these are all that it names. ``fault``: what else it says is of no use."""
        outlet = self._outlet
        if outlet.roster.offers(self.source, offers, outlet.now_s()):
            outlet.on_join()
        if len(offers) != self._n_said:
            _log.info("source-says source=%s replicas=%d", self.source, len(offers))
            self._n_said = len(offers)
        if fault:
            self.failed(fault)
        else:
            self.heard()

    def heard(self) -> None:
        """The source was read, and says what it said before."""
        health = self._health
        health.heard_s = self._outlet.now_s()
        if health.is_failing:
            health.is_failing = False
            _log.info("source-recovered source=%s", self._name)

    def failed(self, reason: str = "") -> None:
        """The source could not be read: what it said stands. Logged once until it can be again.

        Without a reason, who tried to read it has logged that.
        """
        health = self._health
        health.failures += 1
        if not health.is_failing:
            health.is_failing = True
            if reason:
                _log.warning("source-failed source=%s kept=previous reason=%r", self._name, reason)


class Backoff:
    """How long to wait before the next try: twice as long each time, and never quite alike."""

    def __init__(
        self, dice: random.Random, *, first_s: float = 0.5, longest_s: float = 30.0
    ) -> None:
        self._dice = dice
        self._first_s = self._next_s = first_s
        self._longest_s = longest_s

    def next_s(self) -> float:
        """Seconds to wait now: half to all of what is due."""
        due_s = self._next_s
        self._next_s = min(self._longest_s, 2 * due_s)
        return due_s * (0.5 + 0.5 * self._dice.random())

    def reset(self) -> None:
        """It went well: the next wait is the first one again."""
        self._next_s = self._first_s

"""Pins: which replica is a session's home, and what lives where.

A pin is *live* while its session was seen lately; live pins make up each replica's live working
set. An idle pin stays known for longer, so that a person who comes back finds the old home, and
is then forgotten. Both bounds are time and count.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.state.cache.prefix_index import Node
    from router.state.cache.ties import Tie


@dataclass(slots=True)
class Pin:
    """One session's home and what is known of its last request.

    Home, tokens and times are changed by :class:`Pins` only; the core keeps the rest. ``place`` is where
    the prefix index has its last prompt, or had it; ``served`` by which replica, in which epoch of its cache; ``tie`` the last prompt whose pages were learned.
    ``fixed_id`` is the replica that an operator fixed the session to until ``fixed_until_s``, "" for none.
    ``version`` counts the changes of its home, at whichever router; ``turn`` is the number of the request by
    which its last prompt is known. ``told_by`` is the router that told of it last, "" if that was
    served here; ``claim_id`` the replica that computed its last prompt for another router, until it is shown.
    """

    key: str
    home_id: str
    homed_s: float
    used_s: float
    parent_key: str | None = None
    source: str = ""
    created_s: float = 0.0
    n_requests: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    prompt_bytes: int = 0
    output_tokens: int = 0
    tail: int = 0
    tail_segments: int = 0
    place: Node | None = None
    served: tuple[str, int] | None = None
    tie: Tie | None = None
    away_id: str = ""
    away_count: int = 0
    is_live: bool = False
    fixed_id: str = ""
    fixed_until_s: float = inf
    version: int = 0
    turn: int = 0
    told_by: str = ""
    claim_id: str = ""

    def fixed_to(self, now_s: float) -> str:
        """The replica that all its turns are to go to by now; "" if the policy decides."""
        return self.fixed_id if now_s < self.fixed_until_s else ""


@dataclass(slots=True)
class HomeTotals:
    """The live working set of one replica."""

    live_sessions: int = 0
    live_tokens: int = 0


@dataclass(slots=True)
class Pins:
    """All pins, in order of last use.

    ``live_s`` is how long after its last use a session counts as live, ``ttl_s`` how long a pin is
    kept, ``pins_max`` how many are kept at most (the longest idle go first). ``changed`` names the
    replicas whose working set changed, or what they can hold; who reads them from there empties it. ``news`` are the pins that
    other routers are to be told of, likewise; None where there are none.
    """

    live_s: float = 600.0
    ttl_s: float = 14_400.0
    pins_max: int = 200_000
    changed: dict[str, None] = field(default_factory=dict)
    news: dict[str, Pin] | None = None
    _live: OrderedDict[str, Pin] = field(default_factory=OrderedDict)
    _idle: OrderedDict[str, Pin] = field(default_factory=OrderedDict)
    _totals: dict[str, HomeTotals] = field(default_factory=dict)
    _leaving: set[str] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self._live) + len(self._idle)

    @property
    def live_count(self) -> int:
        """Sessions seen within ``live_s``."""
        return len(self._live)

    def get(self, key: str) -> Pin | None:
        """The pin of a session, live or idle."""
        return self._live.get(key) or self._idle.get(key)

    def totals(self, replica_id: str) -> HomeTotals:
        """The live working set of a replica; stays valid and changes with the pins."""
        totals = self._totals.get(replica_id)
        if totals is None:
            totals = self._totals[replica_id] = HomeTotals()
        return totals

    def expect(self, replica_id: str) -> HomeTotals:
        """The working set of a replica that joins: sessions may remember it from before it left."""
        self._leaving.discard(replica_id)
        return self.totals(replica_id)

    def forget(self, replica_id: str) -> None:
        """Drop the row of a replica that left, once it is nobody's live home any more."""
        totals = self._totals.get(replica_id)
        if totals is not None and totals.live_sessions:
            self._leaving.add(replica_id)
        else:
            self._totals.pop(replica_id, None)

    def live(self) -> list[Pin]:
        """The live pins, the longest idle first."""
        return list(self._live.values())

    def recent(self, limit: int) -> list[Pin]:
        """The most recently used pins, newest first."""
        found: list[Pin] = []
        for table in (self._live, self._idle):
            for key in reversed(table):
                if len(found) >= limit:
                    return found
                found.append(table[key])
        return found

    def touch(self, key: str, home_id: str, now_s: float, *, tokens: int) -> Pin:
        """Use a session's pin now: make it if it is new, rehome it if ``home_id`` differs.

        ``tokens`` is what the session now occupies at its home: prompt and expected output.
        """
        pin = self._live.get(key)
        if pin is not None:
            self._live.move_to_end(key)
            if pin.home_id == home_id:
                self._totals[home_id].live_tokens += tokens - pin.tokens
                self.changed[home_id] = None
                pin.used_s, pin.tokens = now_s, tokens
                return pin
            self._uncount(pin)
        else:
            pin = self._idle.pop(key, None)
            if pin is None:
                pin = Pin(key, home_id, homed_s=now_s, used_s=now_s, created_s=now_s)
            self._live[key] = pin
        if pin.home_id != home_id:
            pin.home_id = home_id
            pin.homed_s = now_s
            pin.version += 1
        pin.used_s = now_s
        pin.tokens = tokens
        pin.is_live = True
        totals = self.totals(home_id)
        totals.live_sessions += 1
        totals.live_tokens += tokens
        self.changed[home_id] = None
        if len(self._live) + len(self._idle) > self.pins_max:
            self._evict_oldest()
        return pin

    def rehome(self, pin: Pin, home_id: str, now_s: float) -> None:
        """Give a session another home though it was not used."""
        if pin.home_id == home_id:
            return
        if pin.is_live:
            self._uncount(pin)
        pin.home_id, pin.homed_s, pin.away_count = home_id, now_s, 0
        pin.version += 1
        if pin.is_live:
            totals = self.totals(home_id)
            totals.live_sessions += 1
            totals.live_tokens += pin.tokens
            self.changed[home_id] = None

    def expire(self, now_s: float) -> None:
        """Let pins grow idle and be forgotten; costs nothing for those that stay."""
        while self._live:
            pin = next(iter(self._live.values()))
            if now_s - pin.used_s <= self.live_s:
                break
            del self._live[pin.key]
            self._uncount(pin)
            pin.is_live = False
            self._idle[pin.key] = pin
        while self._idle:
            pin = next(iter(self._idle.values()))
            if now_s - pin.used_s <= self.ttl_s:
                break
            del self._idle[pin.key]

    def _evict_oldest(self) -> None:
        if self._idle:
            self._idle.popitem(last=False)
            return
        _, pin = self._live.popitem(last=False)
        self._uncount(pin)

    def _uncount(self, pin: Pin) -> None:
        totals = self.totals(pin.home_id)
        totals.live_sessions -= 1
        totals.live_tokens -= pin.tokens
        self.changed[pin.home_id] = None
        if totals.live_sessions == 0 and pin.home_id in self._leaving:
            self._leaving.discard(pin.home_id)
            del self._totals[pin.home_id]

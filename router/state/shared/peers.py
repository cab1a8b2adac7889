"""What other routers told, applied to the fleet and to the sessions.

Both are told as they are, never as changes: what was lost, came twice or late does no harm. Of two
homes of one session the one that was changed more often counts, at every router.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from router.state.estimate import continues
from router.state.fleet.replica import NO_PEERS, PeerLoad
from router.state.members.reports import beyond

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.state.cache.prefix_index import PrefixIndex
    from router.state.estimate import Prompt
    from router.state.fleet.fleet import Fleet
    from router.state.fleet.replica import Replica
    from router.state.sessions.pins import Pin, Pins

ROUTERS_MAX: Final = 64
"""Routers whose loads are counted; what more of them tell is left out."""


@dataclass(slots=True, frozen=True)
class ToldPin:
    """A session as another router knows it.

    ``version`` counts the changes of its home, ``turn`` is the number of the request that its last prompt
    is known by; what follows describes that prompt, which ``served_id`` computed ``age_s`` ago ("" if that
    is not known). ``tail`` is the chain's value at its end. ``tokens`` are what the session occupies.
    ``wins`` says whose home counts if two have
    changed equally often. ``fixed_for_s`` None: without an end.
    """

    key: str
    home_id: str
    version: int
    turn: int
    tokens: int
    prompt_tokens: int
    prompt_bytes: int
    output_tokens: int
    tail: int
    tail_segments: int
    served_id: str
    age_s: float
    source: str
    wins: bool
    told_by: str
    fixed_id: str = ""
    fixed_for_s: float | None = None


@dataclass(slots=True)
class _Heard:
    """The last word of one router: its load at each replica where it has any."""

    until_s: float
    loads: Mapping[str, PeerLoad]


class Peers:
    """The other routers' words; ``n`` of them were heard of within their time to live.

    ``is_apart``: there are others, and they cannot be heard.
    """

    def __init__(self, fleet: Fleet, pins: Pins, index: PrefixIndex) -> None:
        self._fleet = fleet
        self._pins = pins
        self._index = index
        self._heard: dict[str, _Heard] = {}
        self._due_s = inf
        self.is_apart = False

    def part(self, *, is_apart: bool) -> None:
        """Others cannot be heard from now on, or can be again."""
        self.is_apart = is_apart

    @property
    def n(self) -> int:
        """Other routers that were heard of lately."""
        return len(self._heard)

    # What they have in flight

    def loaded(
        self, router: str, loads: Mapping[str, PeerLoad], now_s: float, *, ttl_s: float
    ) -> None:
        """A router told all it has in flight, by replica; it holds for ``ttl_s`` at most."""
        known = self._heard.get(router)
        if known is None:
            if len(self._heard) >= ROUTERS_MAX:
                return
            known = self._heard[router] = _Heard(0.0, {})
        before, known.loads, known.until_s = known.loads, loads, now_s + ttl_s
        self._due_s = min(self._due_s, known.until_s)
        for replica_id in {**before, **loads}:
            replica = self._fleet.get(replica_id)
            if replica is not None:
                self._settle(replica, is_news=before.get(replica_id) != loads.get(replica_id))

    def expire(self, now_s: float) -> None:
        """Forget what is too old to hold: a router that is gone, or that cannot be heard."""
        if now_s <= self._due_s:
            return
        gone = [name for name, known in self._heard.items() if known.until_s < now_s]
        for name in gone:
            known = self._heard.pop(name)
            for replica_id in known.loads:
                replica = self._fleet.get(replica_id)
                if replica is not None:
                    self._sum(replica)
                    told = (0, 0.0) if replica.report is None else beyond(replica, replica.report)
                    self._fleet.set_foreign(replica, *told)
        self._due_s = min([known.until_s for known in self._heard.values()], default=inf)

    def _settle(self, replica: Replica, *, is_news: bool) -> None:
        """A replica that has just joined has been told nothing yet, whatever was told before."""
        if not is_news and replica.peers is not NO_PEERS:
            return
        self._sum(replica)
        inflight, backlog_s = replica.others_inflight, replica.others_backlog_s
        if inflight and replica.report is not None:
            # What a report showed of them before they told of it is theirs, not somebody else's.
            most = beyond(replica, replica.report)
            inflight, backlog_s = min(inflight, most[0]), min(backlog_s, most[1])
        self._fleet.set_foreign(replica, inflight, backlog_s)

    def _sum(self, replica: Replica) -> None:
        name = replica.replica_id
        rows = [known.loads[name] for known in self._heard.values() if name in known.loads]
        replica.peers = PeerLoad(*map(sum, zip(*rows, strict=True))) if rows else NO_PEERS

    # Whose sessions are where

    def pinned(self, told: ToldPin, now_s: float) -> None:
        """A router told of a session, which is used now."""
        pins = self._pins
        known = pins.get(told.key)
        if known is None:
            pin = pins.touch(told.key, told.home_id, now_s, tokens=told.tokens)
            pin.source = told.source
            self._follow_home(pin, told, now_s)
        else:
            is_newer = told.version > known.version or (
                told.version == known.version and told.wins and told.home_id != known.home_id
            )
            if is_newer:
                pins.rehome(known, told.home_id, now_s)
                self._follow_home(known, told, now_s)
            tokens = max(known.tokens, told.tokens)
            if told.turn > known.turn:
                tokens = told.tokens
            pin = pins.touch(told.key, known.home_id, now_s, tokens=tokens)
        if self._fleet.get(pin.home_id) is None:
            pins.forget(
                pin.home_id
            )  # nobody here has heard of it yet: its row goes with its sessions
        self._follow_prompt(pin, told)

    def show(self, pin: Pin, prompt: Prompt) -> None:
        """A session that was told of comes: if its prompt goes on, it shows what was computed for it elsewhere."""
        n = pin.tail_segments
        if not continues(prompt, pin):
            return
        held_id, pin.claim_id = pin.claim_id, ""
        place = self._index.hold(held_id, prompt.chain[:n], array("I", prompt.ends_bytes[:n]))
        if place is not None:
            pin.place = place

    def _follow_home(self, pin: Pin, told: ToldPin, now_s: float) -> None:
        pin.version = told.version
        pin.fixed_id = told.fixed_id
        pin.fixed_until_s = inf if told.fixed_for_s is None else now_s + told.fixed_for_s

    def _follow_prompt(self, pin: Pin, told: ToldPin) -> None:
        pin.n_requests = max(pin.n_requests, told.turn)
        is_news = (told.turn, told.prompt_bytes) > (pin.turn, pin.prompt_bytes)
        if not is_news or not told.tail_segments:
            return
        pin.told_by, pin.turn = told.told_by, told.turn
        pin.prompt_tokens, pin.prompt_bytes = told.prompt_tokens, told.prompt_bytes
        pin.output_tokens = told.output_tokens
        pin.tail, pin.tail_segments = told.tail, told.tail_segments
        pin.served = None
        pin.claim_id = told.served_id if self._is_kept(told) else ""

    def _is_kept(self, told: ToldPin) -> bool:
        """The replica keeps prompts for that long, as far as is known here."""
        replica = self._fleet.get(told.served_id)
        if replica is None:
            return False
        lifetime_s = replica.keeping.lifetime_s
        return lifetime_s is None or told.age_s < lifetime_s

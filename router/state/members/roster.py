"""Who names which replica, and the fleet that follows from it.

A source tells the whole of what it names (a file, a DNS name), or one replica at a time (a
registration). The roster keeps these offers and tells the members what changed; an offer that says the
same again costs a comparison. ``docs/fleet.md`` has the rules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from router.state.fleet.replica import ReplicaSpec  # noqa: TC001  (a standing is decoded by its types)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.state.fleet.fleet import Fleet
    from router.state.fleet.replica import Replica
    from router.state.members.members import Members


class Source(StrEnum):
    """Who names replicas, in the order in which they are believed."""

    OPERATOR = "operator"
    STATIC = "static"
    REGISTERED = "registered"
    FILE = "file"
    KUBERNETES = "kubernetes"
    DNS = "dns"


_BY_ACT: Final = (Source.OPERATOR, Source.REGISTERED)
"""They name a replica once, and do not go on saying so."""


@dataclass(slots=True, frozen=True)
class Offer:
    """What a source says of a replica; ``drains``: it is about to go and is to take nothing new."""

    spec: ReplicaSpec
    drains: bool = False


@dataclass(slots=True, frozen=True)
class Standing:
    """What a roster was told once: offers (by whom, of what, seconds left of the lease), drains, removals.

    A drain is an operator's: seconds left, and whether the replica leaves then; ``removed`` are replicas that
    sources go on naming.
    """

    offers: list[tuple[str, ReplicaSpec, float | None]]
    drains: list[tuple[str, float | None, bool]]
    removed: list[str]


@dataclass(slots=True, frozen=True)
class _Drain:
    """An operator's word: it drains, until then at the latest, and leaves when it is empty."""

    until_s: float | None
    leaves: bool


@dataclass(slots=True)
class _Told:
    """What the members were told of a replica last.

    ``drain`` is the drain it is under: an operator's, or True where a source wants it.
    ``is_leaving``: nobody names it.
    """

    spec: ReplicaSpec
    drain: _Drain | bool = False
    is_leaving: bool = False


class Roster:
    """The offers of all sources, and what the members were told of them.

    ``leave_drain_s`` is how long a replica that nobody names any more may end what it has.
    """

    def __init__(self, members: Members, fleet: Fleet, *, leave_drain_s: float = 300.0) -> None:
        self._members = members
        self._fleet = fleet
        self._leave_drain_s = leave_drain_s
        self._offers: dict[Source, dict[str, Offer]] = {source: {} for source in Source}
        self._leases: dict[str, float] = {}  # of registered replicas: until when
        self._drains: dict[str, _Drain] = {}
        self._muted: dict[str, set[Source]] = {}  # who went on naming what an operator removed
        self._told: dict[str, _Told] = {}

    # What sources say

    def offers(self, source: Source, said: Iterable[Offer], now_s: float) -> bool:
        """A source told the whole of what it names; True if a replica joined the fleet by that."""
        before = self._offers[source]
        after = {offer.spec.replica_id: offer for offer in said}
        self._offers[source] = after
        changed = [key for key, offer in after.items() if before.get(key) != offer]
        gone = [key for key in before if key not in after]
        for key in gone:
            self._unmute(key, source)
        joined = [self._settle(key, now_s) for key in (*gone, *changed)]
        return any(joined)

    def offer(self, source: Source, spec: ReplicaSpec, now_s: float) -> Replica:
        """Somebody named one replica now, which ends an operator's drain or removal of it.

        Only a registration may have a lease.
        """
        assert spec.lease_s is None or source is Source.REGISTERED, source
        key = spec.replica_id
        self._offers[source][key] = Offer(spec)
        if source is Source.REGISTERED:
            self._leases.pop(key, None)
            if spec.lease_s is not None:
                self._leases[key] = now_s + spec.lease_s
        self._drains.pop(key, None)
        self._muted.pop(key, None)
        if not self._settle(key, now_s):
            self._members.renew(key, now_s)
        replica = self._fleet.get(key)
        assert replica is not None, f"{key!r} is named, so it is in the fleet"
        return replica

    def withdraw(self, source: Source, replica_id: str, now_s: float) -> bool:
        """A source names a replica no more; False if it did not."""
        if self._offers[source].pop(replica_id, None) is None:
            return False
        if source is Source.REGISTERED:
            self._leases.pop(replica_id, None)
        self._unmute(replica_id, source)
        self._settle(replica_id, now_s)
        return True

    def renew(self, replica_id: str, now_s: float) -> Replica | None:
        """A heartbeat: the replica's lease starts anew. None if it is not in the fleet."""
        if replica_id in self._leases:
            lease_s = self._offers[Source.REGISTERED][replica_id].spec.lease_s
            assert lease_s is not None, replica_id
            self._leases[replica_id] = now_s + lease_s
        return self._members.renew(replica_id, now_s)

    # What an operator says

    def drain(
        self,
        replica_id: str,
        now_s: float,
        *,
        deadline_s: float | None = None,
        leaves: bool = False,
    ) -> Replica | None:
        """Send a replica no new requests until ``undrain``. None if it is not in the fleet.

        ``leaves`` and ``deadline_s`` are those of ``Members.drain``; a replica that went so was removed.
        """
        told = self._told.get(replica_id)
        if told is not None:
            until_s = None if deadline_s is None else now_s + deadline_s
            told.drain = self._drains[replica_id] = _Drain(until_s, leaves)
            if told.is_leaving:
                leaves = True
                deadline_s = self._leave_drain_s if deadline_s is None else deadline_s
        return self._members.drain(replica_id, now_s, deadline_s=deadline_s, leaves=leaves)

    def undrain(self, replica_id: str, now_s: float) -> Replica | None:
        """An operator's drain is over; what a source wants stands. None if it is not in the fleet."""
        if self._drains.pop(replica_id, None) is not None:
            self._settle(replica_id, now_s)
        return self._fleet.get(replica_id)

    def remove(self, replica_id: str) -> bool:
        """Forget a replica at once; False if it is not in the fleet.

        It stays out until somebody names it anew: registers it, or stops naming it before.
        """
        self._forget(replica_id)
        return self._members.leave(replica_id)

    # What time brings

    def expire(self, now_s: float) -> list[str]:
        """End the leases that ran out; answers the replicas that left, as nobody else names them.

        Call it before the core's tick of the same moment, which would remove the others too.
        """
        ended = sorted(key for key, until_s in self._leases.items() if until_s < now_s)
        left: list[str] = []
        for key in ended:
            del self._leases[key]
            self._offers[Source.REGISTERED].pop(key)
            self._unmute(key, Source.REGISTERED)
            if self._named(key) is None:
                self._told.pop(key, None)
                self._drains.pop(key, None)
                self._members.leave(key)
                left.append(key)
            else:
                self._settle(key, now_s)
        return left

    def left(self, replica_ids: Iterable[str]) -> None:
        """The core removed these, for their drain was over."""
        for key in replica_ids:
            told = self._told.get(key)
            if told is not None and told.is_leaving:
                del self._told[key]
                self._drains.pop(key, None)
            else:
                self._forget(key)

    # What is known of it

    def sources(self, replica_id: str) -> tuple[str, ...]:
        """Who names a replica that may do so, in order; the first one's word counts."""
        muted = self._muted.get(replica_id, ())
        return tuple(
            source.value
            for source, offers in self._offers.items()
            if replica_id in offers and source not in muted
        )

    def counts(self) -> dict[str, int]:
        """How many replicas each source names."""
        return {source.value: len(offers) for source, offers in self._offers.items()}

    # What another worker of this router is told

    def standing(self, now_s: float) -> Standing:
        """What does not say itself again: acts of registrations and operators."""
        return Standing(
            [
                (source.value, offer.spec, self._left_s(source, key, now_s))
                for source in _BY_ACT
                for key, offer in self._offers[source].items()
            ],
            [
                (
                    key,
                    None if drain.until_s is None else max(0.0, drain.until_s - now_s),
                    drain.leaves,
                )
                for key, drain in self._drains.items()
            ],
            list(self._muted),
        )

    def adopt(self, standing: Standing, now_s: float) -> None:
        """Be told what another roster knew; what was named here before stays."""
        for source, spec, left_s in standing.offers:
            self.offer(Source(source), spec, now_s)
            if left_s is not None:
                self._leases[spec.replica_id] = now_s + left_s
        for key in standing.removed:
            self.remove(key)
        for key, until_s, leaves in standing.drains:
            self.drain(key, now_s, deadline_s=until_s, leaves=leaves)

    def _left_s(self, source: Source, replica_id: str, now_s: float) -> float | None:
        until_s = self._leases.get(replica_id) if source is Source.REGISTERED else None
        return None if until_s is None else max(0.0, until_s - now_s)

    # How the fleet follows

    def _named(self, replica_id: str) -> Offer | None:
        """What counts of all that is said of a replica."""
        sources = self.sources(replica_id)
        return self._offers[Source(sources[0])][replica_id] if sources else None

    def _settle(self, replica_id: str, now_s: float) -> bool:
        """Tell the members what has changed of a replica; True if it is new to them."""
        offer, told = self._named(replica_id), self._told.get(replica_id)
        if offer is None:
            if told is not None and not told.is_leaving:
                self._let_go(replica_id, told, now_s)
            return False
        if told is None:
            self._members.join(offer.spec, now_s)
            told = self._told[replica_id] = _Told(offer.spec)
            self._follow_drain(replica_id, told, offer, now_s)
            return True
        if told.is_leaving or (told.drain and told.spec != offer.spec):
            self._members.undrain(replica_id, now_s)
            told.is_leaving, told.drain = False, False
        if told.spec != offer.spec:
            self._members.join(offer.spec, now_s)
            told.spec = offer.spec
        self._follow_drain(replica_id, told, offer, now_s)
        return False

    def _let_go(self, replica_id: str, told: _Told, now_s: float) -> None:
        """Nobody names a replica any more: it drains, and its lease counts no more."""
        told.is_leaving = True
        if told.spec.lease_s is not None:
            told.spec = replace(told.spec, lease_s=None)
            self._members.join(told.spec, now_s)
        left_s, drain = self._leave_drain_s, self._drains.get(replica_id)
        if drain is not None and drain.until_s is not None:
            left_s = min(left_s, max(0.0, drain.until_s - now_s))
        self._members.drain(replica_id, now_s, deadline_s=left_s, leaves=True)

    def _follow_drain(self, replica_id: str, told: _Told, offer: Offer, now_s: float) -> None:
        """Let a replica drain, or not, as an operator wants it, else as its source does."""
        wanted: _Drain | bool = self._drains.get(replica_id, offer.drains)
        if wanted == told.drain:
            return
        told.drain = wanted
        match wanted:
            case _Drain(until_s=until_s, leaves=leaves):
                left_s = None if until_s is None else max(0.0, until_s - now_s)
                self._members.drain(replica_id, now_s, deadline_s=left_s, leaves=leaves)
            case True:
                self._members.drain(replica_id, now_s)
            case False:
                self._members.undrain(replica_id, now_s)

    def _forget(self, replica_id: str) -> None:
        """A replica is removed: who goes on naming it is not listened to."""
        self._told.pop(replica_id, None)
        self._drains.pop(replica_id, None)
        self._leases.pop(replica_id, None)
        for source in _BY_ACT:
            self._offers[source].pop(replica_id, None)
        naming = {source for source, offers in self._offers.items() if replica_id in offers}
        if naming:
            self._muted[replica_id] = naming

    def _unmute(self, replica_id: str, source: Source) -> None:
        """A source names a replica no more: when it does so again, that is news."""
        muted = self._muted.get(replica_id)
        if muted is not None:
            muted.discard(source)
            if not muted:
                del self._muted[replica_id]

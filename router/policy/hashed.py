"""Baselines that hash a key onto a ring and look at load only to leave the place it names."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from router.policy.ring import spot_of
from router.policy.ties import chosen, least_inflight
from router.policy.words import by_inflight, inflight, told

if TYPE_CHECKING:
    import random

    from router.policy.view import Explanation, FleetView, Ranking, ReplicaView, RouteRequest


@dataclass(slots=True, frozen=True)
class RingParameters:
    """The bound and the ring.

    ``load_factor``: nobody has more than so many times the mean. 1.25 is a usual setting of HAProxy's
    ``hash-balance-factor``; in the paper the moved keys grow as ``1 / (c - 1) ** 2``.
    ``points`` of a replica on the ring: vllm-router's 160 for its ``consistent_hash``.
    """

    load_factor: float = 1.25
    points: int = 160


class RingBounded:
    """Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2017) of the session key.

    Nobody gets more than ``ceil(c * (m + 1) / n)`` of the ``m`` requests in flight on ``n`` replicas: the
    walk along the ring goes on past who has as many. A request that walked on comes back when there is room,
    which is what costs cached tokens.
    """

    def __init__(self, parameters: RingParameters | None = None) -> None:
        self._p = parameters or RingParameters()

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """The first on the ring below the bound; without one, the fewest requests in flight."""
        del dice
        p, key = self._p, request.session_key
        bound = self._bound(fleet)
        reason = "ring"
        for replica_id in fleet.ring(p.points).from_spot(spot_of(key)):
            replica = fleet.candidate(replica_id)
            if replica is not None:
                if replica.inflight < bound:
                    return chosen(replica, fleet, key, reason)
                reason = "ring-next"
        return chosen(least_inflight(fleet, key), fleet, key, "ring-full")

    def explain(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Explanation:
        """Who comes first on the ring, and who is over the bound."""
        ranking, bound = self.rank(request, fleet, dice), self._bound(fleet)
        if ranking.reason == "ring-full":
            rule = f"everybody has {bound} and more in flight: the fewest"
            return by_inflight(ranking, fleet, rule)
        walk = fleet.ring(self._p.points).from_spot(spot_of(request.session_key))
        order = [replica_id for replica_id in walk if fleet.candidate(replica_id) is not None]
        ahead = order[: order.index(ranking.ranked[0])]

        def tell(replica: ReplicaView) -> tuple[str, str]:
            n, has_passed = replica.inflight, replica.replica_id in ahead
            why = (
                f"nearer on the ring, but at the bound of {bound}"
                if has_passed
                else "further on the ring"
            )
            return f"{n} in flight", why

        rule = f"the first on the ring from the session's key with less than {bound} in flight"
        return told(ranking, fleet, rule, tell)

    def _bound(self, fleet: FleetView) -> int:
        """So many have a share too many."""
        return ceil(self._p.load_factor * (fleet.inflight_sum + 1) / max(1, fleet.n_ready))


@dataclass(slots=True, frozen=True)
class PrefixHashParameters:
    """SMG's defaults: ``load_factor`` 1.25 of the mean. The 256 tokens are the request's ``head_key``.

    ``points``: as of :class:`RingParameters`.
    """

    load_factor: float = 1.25
    points: int = 160


class PrefixHash:
    """SMG 1.13's ``prefix_hash``: the prompt's first 256 tokens on a ring, else the least loaded.

    An overloaded owner (more than the factor times the mean, this request counted) is left for the replica
    with the fewest requests in flight, not for the next on the ring; if all are overloaded, it is not left.
    Differs from the source: hashed are whole segments of up to 4 KB of what the engine renders, tools
    included; SMG sees the messages' text alone.
    """

    def __init__(self, parameters: PrefixHashParameters | None = None) -> None:
        self._p = parameters or PrefixHashParameters()

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """The owner of the prompt's beginning unless it is overloaded."""
        del dice
        key = request.session_key
        owner = self._owner(request, fleet)
        if owner is None:
            return chosen(least_inflight(fleet, key), fleet, key, "no-prefix")
        total = fleet.inflight_sum
        bound = self._bound(fleet)
        if not total or owner.inflight <= bound:
            return chosen(owner, fleet, key, "prefix")
        other = least_inflight(fleet, key)
        return chosen(other if other.inflight <= bound else owner, fleet, key, "prefix-overload")

    def explain(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Explanation:
        """Who owns the prompt's beginning, and who is over the bound."""
        ranking, bound = self.rank(request, fleet, dice), self._bound(fleet)
        owner = self._owner(request, fleet)
        if owner is None:
            return by_inflight(ranking, fleet, "a prompt that cannot be read: the fewest in flight")
        if owner.replica_id == ranking.ranked[0]:
            is_full = ranking.reason == "prefix-overload"
            rule = f"everybody has over {bound:.1f} in flight: " if is_full else ""
            rule += "the one that the ring gives the prompt's first 256 tokens"
            return told(ranking, fleet, rule, lambda r: (inflight(r), "another one's on the ring"))
        rule = f"the owner on the ring has over {bound:.1f} in flight: the fewest"
        found = by_inflight(ranking, fleet, rule)
        for row in found.candidates:
            if row.replica_id == owner.replica_id:
                row.why_not = f"the owner on the ring, but over {bound:.1f} in flight"
        return found

    def _bound(self, fleet: FleetView) -> float:
        """More than so many are an overload."""
        return self._p.load_factor * (fleet.inflight_sum + 1) / max(1, fleet.n_ready)

    def _owner(self, request: RouteRequest, fleet: FleetView) -> ReplicaView | None:
        if not request.head_key:
            return None
        for replica_id in fleet.ring(self._p.points).from_spot(request.head_key):
            replica = fleet.candidate(replica_id)
            if replica is not None:
                return replica
        return None

"""Baselines that hash a key onto a ring and look at load only to leave the place it names."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from router.policy.ring import spot_of
from router.policy.ties import chosen, least_inflight

if TYPE_CHECKING:
    import random

    from router.policy.view import FleetView, Ranking, ReplicaView, RouteRequest


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
        bound = ceil(p.load_factor * (fleet.inflight_sum + 1) / max(1, fleet.n_ready))
        reason = "ring"
        for replica_id in fleet.ring(p.points).from_spot(spot_of(key)):
            replica = fleet.candidate(replica_id)
            if replica is not None:
                if replica.inflight < bound:
                    return chosen(replica, fleet, key, reason)
                reason = "ring-next"
        return chosen(least_inflight(fleet, key), fleet, key, "ring-full")


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
        p, key = self._p, request.session_key
        owner = self._owner(request, fleet)
        if owner is None:
            return chosen(least_inflight(fleet, key), fleet, key, "no-prefix")
        total = fleet.inflight_sum
        bound = p.load_factor * (total + 1) / max(1, fleet.n_ready)
        if not total or owner.inflight <= bound:
            return chosen(owner, fleet, key, "prefix")
        other = least_inflight(fleet, key)
        return chosen(other if other.inflight <= bound else owner, fleet, key, "prefix-overload")

    def _owner(self, request: RouteRequest, fleet: FleetView) -> ReplicaView | None:
        if not request.head_key:
            return None
        for replica_id in fleet.ring(self._p.points).from_spot(request.head_key):
            replica = fleet.candidate(replica_id)
            if replica is not None:
                return replica
        return None

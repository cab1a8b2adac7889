"""Baselines that look at nothing but the list of candidates, or at one count.

Each is here because people run it; none of them prices anything, so their prices are zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hashing.rendezvous import rank as rendezvous_rank
from router.policy.view import Price, Ranking

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from router.policy.view import FleetView, ReplicaView, RouteRequest

_FREE = Price()


def unpriced(ranked: Sequence[ReplicaView], reason: str) -> Ranking:
    """A ranking without prices."""
    ids = tuple(replica.replica_id for replica in ranked)
    return Ranking(ids, reason, {ids[0]: _FREE})


def _least_loaded_first(candidates: Sequence[ReplicaView]) -> list[ReplicaView]:
    return sorted(candidates, key=lambda replica: (replica.inflight, replica.replica_id))


class RoundRobin:
    """Each request to the next replica in order of id (nginx's and SMG's ``round_robin``)."""

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """Start at the request's serial number."""
        del dice
        candidates = fleet.candidates
        first = request.serial % len(candidates)
        return unpriced([*candidates[first:], *candidates[:first]], "round-robin")


class Random:
    """A replica chosen uniformly at random."""

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """Shuffle the candidates."""
        del request
        return unpriced(dice.sample(fleet.candidates, len(fleet.candidates)), "random")


class LeastInflight:
    """The replica with the fewest requests in flight; ties by id, as nginx's ``least_conn``."""

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """Sort by requests in flight."""
        del request, dice
        return unpriced(_least_loaded_first(fleet.candidates), "least-inflight")


class PowerOfTwo:
    """The less loaded of two random replicas (Mitzenmacher 2001; SMG's ``power_of_two``)."""

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """Draw two, keep the better; the rest by load."""
        del request
        pair = dice.sample(fleet.candidates, min(2, len(fleet.candidates)))
        best = min(pair, key=lambda replica: replica.inflight)
        rest = [r for r in _least_loaded_first(fleet.candidates) if r is not best]
        return unpriced([best, *rest], "power-of-two")


class Rendezvous:
    """The session key hashed onto the replicas (Thaler and Ravishankar 1998; Modal's first router)."""

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """Rank by the hash of key and id; load plays no part."""
        del dice
        ids = rendezvous_rank(request.session_key, [r.replica_id for r in fleet.candidates])
        return Ranking(tuple(ids), "rendezvous", {ids[0]: _FREE})


class Sticky:
    """A session stays where it began; it begins where the fewest requests are in flight."""

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """The home if it can take the request, whatever its load."""
        del dice
        ranked = _least_loaded_first(fleet.candidates)
        home = None if request.home_id is None else fleet.candidate(request.home_id)
        if home is None:
            return unpriced(ranked, "new" if request.home_id is None else "rehome")
        return unpriced([home, *(r for r in ranked if r is not home)], "home")

"""Baselines that look at nothing but the list of candidates, or at one count.

Each is here because people run it; none of them prices anything, so their prices are zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hashing.rendezvous import first as rendezvous_first
from router.policy.ties import RANKED_MAX, chosen, least_inflight, preferred, unpriced

if TYPE_CHECKING:
    import random

    from router.policy.view import FleetView, Ranking, RouteRequest


class RoundRobin:
    """Each request to the next replica in order of id (nginx's and SMG's ``round_robin``)."""

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """Start at the request's serial number."""
        del dice
        candidates = fleet.candidates
        n = len(candidates)
        turns = range(request.serial, request.serial + min(n, RANKED_MAX))
        return unpriced([candidates[turn % n].replica_id for turn in turns], "round-robin")


class Random:
    """A replica chosen uniformly at random."""

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """Draw as many as a ranking has."""
        del request
        candidates = fleet.candidates
        drawn = dice.sample(candidates, min(len(candidates), RANKED_MAX))
        return unpriced([replica.replica_id for replica in drawn], "random")


class LeastInflight:
    """The replica with the fewest requests in flight, as nginx's ``least_conn``; ties by rendezvous."""

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """The fewest requests in flight first."""
        del dice
        key = request.session_key
        return chosen(least_inflight(fleet, key), fleet, key, "least-inflight")


class PowerOfTwo:
    """The less loaded of two random replicas (Mitzenmacher 2001; SMG's ``power_of_two``)."""

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """Draw two, keep the better; the rest by load."""
        candidates, key = fleet.candidates, request.session_key
        pair = dice.sample(candidates, min(2, len(candidates)))
        fewest = min([replica.inflight for replica in pair])
        best = preferred(key, [replica for replica in pair if replica.inflight == fewest])
        return chosen(best, fleet, key, "power-of-two")


class Rendezvous:
    """The session key hashed onto the replicas (Thaler and Ravishankar 1998; Modal's first router)."""

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """Rank by the hash of key and id, of every candidate; load plays no part."""
        del dice
        ids = [replica.replica_id for replica in fleet.candidates]
        return unpriced(rendezvous_first(request.session_key, ids, RANKED_MAX), "rendezvous")


class Sticky:
    """A session stays where it began; it begins where the fewest requests are in flight."""

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """The home if it can take the request, whatever its load."""
        del dice
        key = request.session_key
        home = None if request.home_id is None else fleet.candidate(request.home_id)
        if home is not None:
            return chosen(home, fleet, key, "home")
        reason = "new" if request.home_id is None else "rehome"
        return chosen(least_inflight(fleet, key), fleet, key, reason)

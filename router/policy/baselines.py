"""Baselines that look at nothing but the list of candidates, or at one count.

Each is here because people run it; none of them prices anything, so their prices are zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hashing.rendezvous import first as rendezvous_first
from router.policy.ties import RANKED_MAX, chosen, least_inflight, preferred, unpriced
from router.policy.words import by_inflight, inflight, more_inflight, told

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from router.policy.view import Explanation, FleetView, Ranking, ReplicaView, RouteRequest


class RoundRobin:
    """Each request to the next replica in order of id (nginx's and SMG's ``round_robin``)."""

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """Start at the request's serial number."""
        del dice
        candidates = fleet.candidates
        n = len(candidates)
        turns = range(request.serial, request.serial + min(n, RANKED_MAX))
        return unpriced([candidates[turn % n].replica_id for turn in turns], "round-robin")

    def explain(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Explanation:
        """Whose turn comes when."""
        ranking, n = self.rank(request, fleet, dice), len(fleet.candidates)
        places = {r.replica_id: i for i, r in enumerate(fleet.candidates)}
        first = places[ranking.ranked[0]]

        def tell(replica: ReplicaView) -> tuple[str, str]:
            place = places[replica.replica_id]
            ahead = (place - first) % n
            return (
                f"{place + 1} of {n} by id",
                f"its turn is {ahead} request{'s'[: ahead - 1]} later",
            )

        return told(ranking, fleet, "the next one by id, whatever the load", tell)


class Random:
    """A replica chosen uniformly at random."""

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """Draw as many as a ranking has."""
        del request
        candidates = fleet.candidates
        drawn = dice.sample(candidates, min(len(candidates), RANKED_MAX))
        return unpriced([replica.replica_id for replica in drawn], "random")

    def explain(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Explanation:
        """Who was drawn."""
        ranking = self.rank(request, fleet, dice)
        drawn = {replica_id: n for n, replica_id in enumerate(ranking.ranked, 1)}

        def tell(replica: ReplicaView) -> tuple[str, str]:
            n = drawn.get(replica.replica_id)
            return ("-", "not drawn") if n is None else (f"draw {n}", "drawn later")

        return told(ranking, fleet, "one drawn at random, whatever the load", tell)


class LeastInflight:
    """The replica with the fewest requests in flight, as nginx's ``least_conn``; ties by rendezvous."""

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """The fewest requests in flight first."""
        del dice
        key = request.session_key
        return chosen(least_inflight(fleet, key), fleet, key, "least-inflight")

    def explain(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Explanation:
        """By how many more each has."""
        return by_inflight(self.rank(request, fleet, dice), fleet, "the fewest requests in flight")


class PowerOfTwo:
    """The less loaded of two random replicas (Mitzenmacher 2001; SMG's ``power_of_two``)."""

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """Draw two, keep the better; the rest by load."""
        return self._better_of(_pair(fleet, dice), request, fleet)

    def explain(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Explanation:
        """Who was drawn, and how many more each has."""
        pair = _pair(fleet, dice)
        ranking = self._better_of(pair, request, fleet)
        best = fleet.candidate(ranking.ranked[0])
        assert best is not None, "one of the two is chosen"

        def tell(replica: ReplicaView) -> tuple[str, str]:
            is_drawn = any(replica is one for one in pair)
            why = more_inflight(replica, best) if is_drawn else "not drawn"
            return inflight(replica), why

        return told(ranking, fleet, "of two drawn at random, the fewest requests in flight", tell)

    def _better_of(
        self, pair: Sequence[ReplicaView], request: RouteRequest, fleet: FleetView
    ) -> Ranking:
        key = request.session_key
        fewest = min([replica.inflight for replica in pair])
        best = preferred(key, [replica for replica in pair if replica.inflight == fewest])
        return chosen(best, fleet, key, "power-of-two")


def _pair(fleet: FleetView, dice: random.Random) -> Sequence[ReplicaView]:
    candidates = fleet.candidates
    return dice.sample(candidates, min(2, len(candidates)))


class Rendezvous:
    """The session key hashed onto the replicas (Thaler and Ravishankar 1998; Modal's first router)."""

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """Rank by the hash of key and id, of every candidate; load plays no part."""
        del dice
        ids = [replica.replica_id for replica in fleet.candidates]
        return unpriced(rendezvous_first(request.session_key, ids, RANKED_MAX), "rendezvous")

    def explain(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Explanation:
        """Each one's place for this key."""
        ranking, ids = self.rank(request, fleet, dice), [r.replica_id for r in fleet.candidates]
        ordered = rendezvous_first(request.session_key, ids, len(ids))
        places = {replica_id: n for n, replica_id in enumerate(ordered, 1)}

        def tell(replica: ReplicaView) -> tuple[str, str]:
            words = f"place {places[replica.replica_id]} of {len(ids)}"
            return words, "the session's key ranks it lower"

        return told(
            ranking, fleet, "the first by the hash of session and id, whatever the load", tell
        )


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

    def explain(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Explanation:
        """The home, or by how many more each has."""
        ranking = self.rank(request, fleet, dice)
        if ranking.reason == "home":
            rule = "a session stays where it began, whatever the load"
            return told(ranking, fleet, rule, lambda r: (inflight(r), "not the session's home"))
        return by_inflight(ranking, fleet, "who has no home begins with the fewest in flight")

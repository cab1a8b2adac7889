"""Modal's second session router. Its first one is ``rendezvous``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.policy.ties import chosen, least, least_inflight
from router.policy.words import by_inflight, inflight, scored, told

if TYPE_CHECKING:
    import random

    from router.policy.view import Explanation, FleetView, Ranking, ReplicaView, RouteRequest


@dataclass(slots=True, frozen=True)
class ModalParameters:
    """Numbers of ours: Modal's account of it gives none.

    ``inflight_target`` is what a replica serves well at once. A session is thick above ``thick_factor``
    times that. A home is left with more than ``leave_factor`` times the mean and ``leave_margin``
    requests. ``used_weight``: a full KV pool weighs as a whole target of requests.
    """

    inflight_target: int = 5
    thick_factor: float = 2.0
    leave_factor: float = 2.0
    leave_margin: float = 2.0
    used_weight: float = 1.0


class ModalV2:
    """Sessions stay, new ones go by requests in flight and KV use, thick ones are split.

    A session whose own requests at its home are over twice the target is split: this one goes where the
    fewest are in flight, the home stays. One whose home is crowded against the mean is assigned anew.
    """

    def __init__(self, parameters: ModalParameters | None = None) -> None:
        self._p = parameters or ModalParameters()

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """The home unless the session is too thick for it or it is too crowded."""
        del dice
        p, key = self._p, request.session_key
        home = None if request.home_id is None else fleet.candidate(request.home_id)
        if home is None:
            reason = "new" if request.home_id is None else "rehome"
            return chosen(self._freest(fleet, key), fleet, key, reason)
        if self._is_thick(request):
            other = least_inflight(fleet, key)
            return chosen(other, fleet, key, "home" if other is home else "split")
        mean = fleet.inflight_sum / max(1, fleet.n_ready)
        if home.inflight > p.leave_factor * mean + p.leave_margin:
            other = self._freest(fleet, key)
            return chosen(other, fleet, key, "home" if other is home else "move")
        return chosen(home, fleet, key, "home")

    def explain(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Explanation:
        """Who is the home, or by how much each is busier."""
        p, ranking = self._p, self.rank(request, fleet, dice)
        home = None if request.home_id is None else fleet.candidate(request.home_id)
        if home is not None and self._is_thick(request):
            rule = f"{request.session_inflight} of the session's requests are in flight at home: the fewest"
            return by_inflight(ranking, fleet, rule)
        mean = fleet.inflight_sum / max(1, fleet.n_ready)
        most = p.leave_factor * mean + p.leave_margin
        if home is not None and home.inflight <= most:
            rule = f"a session stays while its home has at most {most:.1f} in flight"
            return told(ranking, fleet, rule, lambda r: (inflight(r), "not the session's home"))
        what = "it has no home" if home is None else f"home has over {most:.1f} in flight"
        scores = {r.replica_id: score for score, r in self._scores(fleet)}
        rule = f"{what}: the least in flight / {p.inflight_target} + share of KV in use"
        return scored(ranking, fleet, rule, scores, "score")

    def _is_thick(self, request: RouteRequest) -> bool:
        return request.session_inflight > self._p.thick_factor * self._p.inflight_target

    def _freest(self, fleet: FleetView, key: str) -> ReplicaView:
        return least(key, self._scores(fleet))

    def _scores(self, fleet: FleetView) -> list[tuple[float, ReplicaView]]:
        p = self._p
        return [
            (r.inflight / p.inflight_target + p.used_weight * r.used_ratio, r)
            for r in fleet.candidates
        ]

"""Modal's second session router. Its first one is ``rendezvous``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.policy.ties import chosen, least, least_inflight

if TYPE_CHECKING:
    import random

    from router.policy.view import FleetView, Ranking, ReplicaView, RouteRequest


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
        if request.session_inflight > p.thick_factor * p.inflight_target:
            other = least_inflight(fleet, key)
            return chosen(other, fleet, key, "home" if other is home else "split")
        mean = fleet.inflight_sum / max(1, fleet.n_ready)
        if home.inflight > p.leave_factor * mean + p.leave_margin:
            other = self._freest(fleet, key)
            return chosen(other, fleet, key, "home" if other is home else "move")
        return chosen(home, fleet, key, "home")

    def _freest(self, fleet: FleetView, key: str) -> ReplicaView:
        p = self._p
        return least(
            key,
            [
                (r.inflight / p.inflight_target + p.used_weight * r.used_ratio, r)
                for r in fleet.candidates
            ],
        )

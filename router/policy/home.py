"""``home``: a session stays with its cache, new sessions go where there is room.

Prices are seconds of people's time, for this request and for those it would hold up:

- *wait*: prefill ahead of it at the replica;
- *prefill*: what it has to compute there;
- *interference*: the requests that answer there meanwhile wait for its prefill, and each of them
  slows its own answer a little;
- *pressure*: recomputing what it would push out of the cache; for a new session also what sharing
  the replica with the sessions that live there will cost over its life.

A session leaves its home only when that is clearly cheaper, since a move leaves a stale copy behind
and adds a cold prefill where it goes. A session with many requests at once (a tree of sub-agents
under one id) is split: its further requests go where they are cheapest, its home stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from hashing.rendezvous import rank as rendezvous_rank
from router.policy.view import Price, Ranking

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from router.policy.view import FleetView, ReplicaView, RouteRequest

_RANKED_MAX: Final = 4
"""The chosen replica and three to fall back on; a retry asks anew, with the fleet as it is then."""

_BACKLOG: Final = attrgetter("backlog_s")


@dataclass(slots=True, frozen=True)
class HomeParameters:
    """Constants of the policy, with their reasons.

    ``thick_inflight``: requests of one session in flight at its home from which on it is split; a
    replica serves about five at once, so one session may fill it but not queue behind itself.
    ``move_factor`` and ``move_margin_s``: home must cost more than ``factor * other + margin`` to be
    left. ``move_age_s_min``: a session that has just moved stays. ``branch_margin_s``: what a branch
    of the session that is cached elsewhere must save.
    ``session_s``: what one more live session costs a new neighbour over its life: some thirty turns,
    a fifth of them meeting one of its requests, 40 ms each. ``session_s_per_token``: the same for
    its size, 0.5 s for 100k tokens (its attention in each shared step).
    ``neighbour_s_per_token``: what one running neighbour adds to an output token: 2.5 ms a verify
    step of 5.84 tokens. ``room_ratio``: the share of a replica's capacity that live sessions may
    fill before pressure is charged.
    """

    thick_inflight: int = 4
    move_factor: float = 3.0
    move_margin_s: float = 2.0
    move_age_s_min: float = 30.0
    branch_margin_s: float = 0.25
    branch_tokens_min: int = 2_048
    session_s: float = 0.25
    session_s_per_token: float = 5e-6
    neighbour_s_per_token: float = 0.000_43
    room_ratio: float = 0.9


class Home:
    """The default policy; see the module's docstring."""

    def __init__(self, parameters: HomeParameters | None = None) -> None:
        self._p = parameters or HomeParameters()

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """Home unless another replica is clearly cheaper; a place for a session that has none."""
        del dice
        home = None if request.home_id is None else fleet.candidate(request.home_id)
        if home is None:
            reason = "new" if request.home_id is None else "rehome"
            return self._place(request, fleet, "auxiliary" if request.is_auxiliary else reason)
        if request.is_auxiliary:
            return self._cheapest(request, fleet, home, "auxiliary")
        if request.session_inflight >= self._p.thick_inflight:
            return self._cheapest(request, fleet, home, "split")
        return self._stay_or_leave(request, fleet, home)

    def _stay_or_leave(self, request: RouteRequest, fleet: FleetView, home: ReplicaView) -> Ranking:
        p = self._p
        at_home = self._price(request, home)
        branch = self._branch_holder(request, fleet, home)
        if branch is not None:
            there = self._price(request, branch)
            if there.total_s + p.branch_margin_s < at_home.total_s:
                prices = {branch.replica_id: there, home.replica_id: at_home}
                return Ranking((branch.replica_id, home.replica_id), "branch", prices)
        can_leave = request.home_age_s >= p.move_age_s_min and len(fleet.candidates) > 1
        # Nobody can be cheaper than nothing: only a home this dear is worth a look at the rest.
        if can_leave and at_home.total_s > p.move_margin_s:
            others = [r for r in fleet.candidates if r is not home]
            priced = [(self._price(request, r), r) for r in others]
            there, best = min(priced, key=lambda pair: pair[0].total_s)
            if p.move_factor * there.total_s + p.move_margin_s < at_home.total_s:
                prices = {best.replica_id: there, home.replica_id: at_home}
                return Ranking(self._ranked(best, fleet), "move", prices)
        return Ranking(self._ranked(home, fleet), "home", {home.replica_id: at_home})

    def _place(self, request: RouteRequest, fleet: FleetView, reason: str) -> Ranking:
        """Choose a home for a session that has none, by its price there and its life there."""
        prices = {r.replica_id: self._price(request, r, is_new=True) for r in fleet.candidates}
        chosen = self._least(request, fleet.candidates, prices)
        return Ranking(self._ranked(chosen, fleet), reason, prices)

    def _cheapest(
        self, request: RouteRequest, fleet: FleetView, home: ReplicaView, reason: str
    ) -> Ranking:
        """Where this one request costs least; the session's home is not at stake."""
        prices = {r.replica_id: self._price(request, r) for r in fleet.candidates}
        chosen = self._least(request, fleet.candidates, prices)
        return Ranking(self._ranked(chosen, fleet), "home" if chosen is home else reason, prices)

    @staticmethod
    def _least(
        request: RouteRequest, candidates: Sequence[ReplicaView], prices: dict[str, Price]
    ) -> ReplicaView:
        """The cheapest candidate; equal ones (to the millisecond) by rendezvous rank."""
        least_ms = min(round(price.total_s * 1e3) for price in prices.values())
        tied = [r for r in candidates if round(prices[r.replica_id].total_s * 1e3) == least_ms]
        if len(tied) == 1:
            return tied[0]
        first = rendezvous_rank(request.session_key, [r.replica_id for r in tied])[0]
        return next(r for r in tied if r.replica_id == first)

    def _branch_holder(
        self, request: RouteRequest, fleet: FleetView, home: ReplicaView
    ) -> ReplicaView | None:
        """The candidate that holds clearly more of this prompt than home does, if there is one."""
        at_home = request.cached_tokens.get(home.replica_id, 0)
        best_id, most = None, at_home + self._p.branch_tokens_min
        for replica_id, cached in request.cached_tokens.items():
            if cached > most:
                best_id, most = replica_id, cached
        return None if best_id is None else fleet.candidate(best_id)

    def _price(self, request: RouteRequest, replica: ReplicaView, *, is_new: bool = False) -> Price:
        p = self._p
        cached = request.cached_tokens.get(replica.replica_id, 0)
        new_tokens = request.prompt_tokens - cached
        prefill_s = replica.prefill_s(new_tokens, cached)
        neighbours = replica.inflight
        slowed_s = request.output_tokens * p.neighbour_s_per_token
        interference_s = replica.decoding * prefill_s + neighbours * slowed_s
        room = p.room_ratio * replica.capacity_tokens - replica.live_tokens
        pushed_out = min(max(0.0, new_tokens + request.output_tokens - room), new_tokens)
        pressure_s = replica.prefill_s(int(pushed_out), cached)
        if is_new:
            pressure_s += (
                replica.live_sessions * p.session_s + replica.live_tokens * p.session_s_per_token
            )
        return Price(replica.backlog_s, prefill_s, interference_s, pressure_s)

    @staticmethod
    def _ranked(chosen: ReplicaView, fleet: FleetView) -> tuple[str, ...]:
        """The chosen replica, then the least backlogged others."""
        rest = sorted(fleet.candidates, key=_BACKLOG)[:_RANKED_MAX]
        ids = [chosen.replica_id, *[r.replica_id for r in rest if r is not chosen]]
        return tuple(ids[:_RANKED_MAX])

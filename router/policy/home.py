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
from typing import TYPE_CHECKING

from router.policy.ties import RANKED_MAX, preferred
from router.policy.view import Price, Ranking

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterator, Sequence

    from router.policy.view import FleetView, ReplicaView, RouteRequest


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
    ``weigh_all_max`` and ``place_all_max``: up to so many ready replicas each is priced, for one request
    and for a new session (one request in seventy); in a larger fleet the ``weighed`` best by backlog, by
    requests in flight, of the holders and, for a new session, by live working set: what is best by price
    is among the best in one of its parts.
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
    weigh_all_max: int = 16
    place_all_max: int = 64
    weighed: int = 8


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
        # Nobody can be cheaper than nothing: only a home this dear is worth a look at the rest.
        if request.home_age_s >= p.move_age_s_min and at_home.total_s > p.move_margin_s:
            weighed = self._weighed(request, fleet)
            prices = {r.replica_id: self._price(request, r) for r in weighed if r is not home}
            if prices:
                best = _least(request, weighed, prices)
                there = prices[best.replica_id]
                if p.move_factor * there.total_s + p.move_margin_s < at_home.total_s:
                    prices = {best.replica_id: there, home.replica_id: at_home}
                    return Ranking(_ranked(best, request, fleet), "move", prices)
        return Ranking(_ranked(home, request, fleet), "home", {home.replica_id: at_home})

    def _place(self, request: RouteRequest, fleet: FleetView, reason: str) -> Ranking:
        """Choose a home for a session that has none, by its price there and its life there."""
        weighed = self._weighed(request, fleet, is_new=True)
        prices = {r.replica_id: self._price(request, r, is_new=True) for r in weighed}
        best = _least(request, weighed, prices)
        return Ranking(_ranked(best, request, fleet), reason, prices)

    def _cheapest(
        self, request: RouteRequest, fleet: FleetView, home: ReplicaView, reason: str
    ) -> Ranking:
        """Where this one request costs least; the session's home is not at stake."""
        weighed = self._weighed(request, fleet)
        if all(replica is not home for replica in weighed):
            weighed = [*weighed, home]
        prices = {r.replica_id: self._price(request, r) for r in weighed}
        best = _least(request, weighed, prices)
        why = "home" if best is home else reason
        return Ranking(_ranked(best, request, fleet), why, prices)

    def _weighed(
        self, request: RouteRequest, fleet: FleetView, *, is_new: bool = False
    ) -> Sequence[ReplicaView]:
        """The candidates that are priced: all of a small fleet, the most promising of a large one."""
        p = self._p
        if fleet.n_ready <= (p.place_all_max if is_new else p.weigh_all_max):
            return fleet.candidates
        key, k = request.session_key, p.weighed
        found = [*fleet.least_backlogged(k, key), *fleet.least_inflight(k, key)]
        if is_new:
            found += fleet.least_lived_in(2 * k, key)
        for tokens, ids in request.cached_tokens.levels():
            if not tokens or len(ids) > k:
                break
            found += _candidates_of(ids, request, fleet, k)
        return list({replica.replica_id: replica for replica in found}.values())

    def _branch_holder(
        self, request: RouteRequest, fleet: FleetView, home: ReplicaView
    ) -> ReplicaView | None:
        """The candidate that holds clearly more of this prompt than home does, if there is one."""
        cached = request.cached_tokens
        most = cached.get(home.replica_id) + self._p.branch_tokens_min
        if cached.most <= most:
            return None
        best: list[ReplicaView] = []
        for tokens, ids in cached.levels():
            if tokens <= most:
                break
            for replica in _candidates_of(ids, request, fleet, self._p.weighed):
                held = cached.get(replica.replica_id)
                if held > most:
                    best, most = [replica], held
                elif held == most and best and replica not in best:
                    best.append(replica)
        return preferred(request.session_key, best) if best else None

    def _price(self, request: RouteRequest, replica: ReplicaView, *, is_new: bool = False) -> Price:
        p = self._p
        cached = request.cached_tokens.get(replica.replica_id)
        new_tokens, output_tokens = request.prompt_tokens - cached, request.output_tokens
        live_tokens = replica.live_tokens
        prefill_s = replica.prefill_s(new_tokens, cached)
        slowed_s = output_tokens * p.neighbour_s_per_token
        interference_s = replica.decoding * prefill_s + replica.inflight * slowed_s
        pressure_s = 0.0
        over = new_tokens + output_tokens + live_tokens - p.room_ratio * replica.capacity_tokens
        if over > 0:
            pressure_s = replica.prefill_s(int(min(over, new_tokens)), cached)
        if is_new:
            pressure_s += replica.live_sessions * p.session_s + live_tokens * p.session_s_per_token
        return Price(replica.backlog_s, prefill_s, interference_s, pressure_s)


def _candidates_of(
    ids: Collection[str], request: RouteRequest, fleet: FleetView, k: int
) -> Iterator[ReplicaView]:
    """The candidates among holders; of more than ``k``, those that are among the least backlogged."""
    if len(ids) > k:
        yield from (
            r for r in fleet.least_backlogged(2 * k, request.session_key) if r.replica_id in ids
        )
        return
    for replica_id in ids:
        replica = fleet.candidate(replica_id)
        if replica is not None:
            yield replica


def _least(
    request: RouteRequest, weighed: Sequence[ReplicaView], prices: dict[str, Price]
) -> ReplicaView:
    """The cheapest of the priced; equal ones (to the millisecond) by rendezvous rank."""
    totals_ms = {key: round(price.total_s * 1e3) for key, price in prices.items()}
    least_ms = min(totals_ms.values())
    tied = [r for r in weighed if totals_ms.get(r.replica_id) == least_ms]
    return preferred(request.session_key, tied)


def _ranked(best: ReplicaView, request: RouteRequest, fleet: FleetView) -> tuple[str, ...]:
    """The chosen replica, then the least backlogged others."""
    rest = fleet.least_backlogged(RANKED_MAX, request.session_key)
    ids = [best.replica_id, *[r.replica_id for r in rest if r is not best]]
    return tuple(ids[:RANKED_MAX])

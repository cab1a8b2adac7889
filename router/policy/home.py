"""``home``: a session stays with its cache, new sessions go where there is room.

Prices are seconds of people's time, for this request and for those it would hold up:

- *wait*: prefill ahead of it at the replica;
- *prefill*: what it has to compute there;
- *interference*: the requests that answer there meanwhile wait for its prefill, and each of them
  slows its own answer a little; where more lives in the fleet than its caches hold, each in flight there is one more
  that a new session waits for room with;
- *pressure*: recomputing what it would push out of the cache; for a new session also what sharing
  the replica with the sessions that live there will cost over its life.

A session leaves its home only when that is clearly cheaper, and the busier the fleet the more so, since a move leaves a
stale copy behind and adds a cold prefill where it goes. Long prompts take turns (``router.state.fleet.turns``). A session with many requests at once (a tree of sub-agents
under one id) is split: its further requests go where they are cheapest, its home stays.

Where other routers decide on the same sessions and cannot be heard, homes are not priced, for prices differ
with what each has seen: who has a home stays, who has none goes where rendezvous hashing ranks it first.

Every part of a price is divided by the replica's weight.
"""

from __future__ import annotations

from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from router.policy.home_rules import Case, HomeParameters, Reasons, Terms
from router.policy.ties import RANKED_MAX, preferred
from router.policy.view import Explanation, Price, Ranking, Weighed

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from router.policy.view import CachedTokens, FleetView, ReplicaView, RouteRequest

_TIE_S: Final = 0.002
"""More apart than that, two prices are not equal to the millisecond, however they are rounded."""

_BOUND: Final = itemgetter(0)


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
            if request.is_apart and not request.is_auxiliary:
                return self._agreed(request, fleet, reason)
            return self._place(request, fleet, "auxiliary" if request.is_auxiliary else reason)
        if request.is_auxiliary:
            return self._cheapest(request, fleet, home, "auxiliary")
        if request.session_inflight >= self._p.thick_inflight:
            return self._cheapest(request, fleet, home, "split")
        return self._stay_or_leave(request, fleet, home)

    def explain(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Explanation:
        """What ``rank`` chooses, with everybody's price; the others' reasons are its rules' comparisons."""
        ranking = self.rank(request, fleet, dice)
        home = None if request.home_id is None else fleet.candidate(request.home_id)
        is_new, branch = home is None, None
        case = self._case(request, ranking, home)
        is_full = is_new and self._p.is_full(fleet)
        prices = {
            r.replica_id: self._price(request, r, is_new=is_new, is_full=is_full)
            for r in fleet.candidates
        }
        weighed = {r.replica_id for r in self._weighed(request, fleet, is_new=is_new)}
        if home is not None:
            weighed.add(home.replica_id)
            if case is Case.STAYED and prices[home.replica_id].total_s > self._p.branch_margin_s:
                branch = self._branch_holder(request, fleet, home)
        terms = None if home is None else self._p.terms(prices[home.replica_id], fleet)
        reasons = Reasons(
            self._p, request, ranking, case, terms, prices, weighed,
            branch_id=None if branch is None else branch.replica_id,
        )  # fmt: skip
        rows = [
            Weighed(replica_id, f"{price.total_s:.3f} s", reasons.why_not(replica_id), price)
            for replica_id, price in prices.items()
        ]
        return Explanation(ranking, reasons.rule, tuple(rows))

    def _case(self, request: RouteRequest, ranking: Ranking, home: ReplicaView | None) -> Case:
        """By which of the rules ``rank`` decided."""
        if home is None:
            is_agreed = request.is_apart and not request.is_auxiliary
            return Case.AGREED if is_agreed else Case.PLACED
        if request.is_auxiliary or request.session_inflight >= self._p.thick_inflight:
            return Case.CHEAPEST
        if request.is_apart:
            return Case.APART
        return Case(ranking.reason)

    def _stay_or_leave(self, request: RouteRequest, fleet: FleetView, home: ReplicaView) -> Ranking:
        p = self._p
        at_home = self._price(request, home)
        home_id, home_s = home.replica_id, at_home.total_s
        if request.is_apart:
            return _ranking((home_id,), "home", {home_id: at_home})
        # What is saved is less than what home costs.
        branch = None if home_s <= p.branch_margin_s else self._branch_holder(request, fleet, home)
        if branch is not None:
            there = self._price(request, branch)
            if there.total_s + p.branch_margin_s < home_s:
                prices = {branch.replica_id: there, home_id: at_home}
                return _ranking((branch.replica_id, home_id), "branch", prices)
        if request.home_age_s >= p.move_age_s_min and home_s > p.move_margin_s:
            better = self._better(request, fleet, home, at_home)
            if better is not None:
                best, there = better
                prices = {best.replica_id: there, home_id: at_home}
                return _ranking((best.replica_id, home_id), "move", prices)
        # Who stays is ranked alone: mostly nobody else was looked at.
        return _ranking((home_id,), "home", {home_id: at_home})

    def _better(
        self, request: RouteRequest, fleet: FleetView, home: ReplicaView, at_home: Price
    ) -> tuple[ReplicaView, Price] | None:
        """The cheapest of the others, its toll counted, if home may be left for it."""
        terms = self._p.terms(at_home, fleet)
        # What it may cost is compared with the least that anybody can: mostly nobody need be priced.
        cached_tokens = _most_elsewhere(request.cached_tokens, home.replica_id)
        floor_s = _floor_s(request, fleet, cached_tokens)
        limit_s = terms.most_s + _TIE_S - terms.toll_s(floor_s)
        # The first comparison is implied by the second, and spares reading the order by backlog.
        if floor_s > limit_s or fleet.least_backlog_s + floor_s > limit_s:
            return None
        others = [r for r in self._weighed(request, fleet) if r is not home]
        best = self._least(request, others, floor_s=floor_s, terms=terms)
        return best if best is not None and terms.is_clear(best[1]) else None

    def _place(self, request: RouteRequest, fleet: FleetView, reason: str) -> Ranking:
        """Choose a home for a session that has none, by its price there and its life there."""
        weighed = self._weighed(request, fleet, is_new=True)
        floor_s = _floor_s(request, fleet, request.cached_tokens.most)
        seen: dict[str, Price] = {}
        is_full = self._p.is_full(fleet)
        found = self._least(
            request, weighed, is_new=True, is_full=is_full, floor_s=floor_s, seen=seen
        )
        assert found is not None, "some candidate is the cheapest"
        best, price = found
        ids = _ids_of(_ranked(best, request, fleet))
        prices = {replica_id: seen[replica_id] for replica_id in ids if replica_id in seen}
        prices[best.replica_id] = price
        return _ranking(ids, reason, prices)

    def _agreed(self, request: RouteRequest, fleet: FleetView, reason: str) -> Ranking:
        """The home that any router would choose, whatever it has seen; the rest by backlog."""
        best = preferred(request.session_key, fleet.candidates)
        price = self._price(request, best, is_new=True, is_full=self._p.is_full(fleet))
        return _ranking(_ids_of(_ranked(best, request, fleet)), reason, {best.replica_id: price})

    def _cheapest(
        self, request: RouteRequest, fleet: FleetView, home: ReplicaView, reason: str
    ) -> Ranking:
        """Where this one request costs least; the session's home is not at stake."""
        weighed = self._weighed(request, fleet)
        if all(replica is not home for replica in weighed):
            weighed = [*weighed, home]
        floor_s = _floor_s(request, fleet, request.cached_tokens.most)
        found = self._least(request, weighed, floor_s=floor_s)
        assert found is not None, "some candidate is the cheapest"
        best, price = found
        ranked = _ranked(best, request, fleet)
        prices = {best.replica_id: price}
        prices |= {r.replica_id: self._price(request, r) for r in (*ranked[1:], home)}
        return _ranking(_ids_of(ranked), "home" if best is home else reason, prices)

    def _weighed(
        self, request: RouteRequest, fleet: FleetView, *, is_new: bool = False
    ) -> Sequence[ReplicaView]:
        """The candidates that are priced: all of a small fleet, the most promising of a large one."""
        p = self._p
        if fleet.n_ready <= p.weigh_all_max:
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
        """The candidate that holds clearly more of this prompt than home does, and most of it, if there is one."""
        p, cached = self._p, request.cached_tokens
        most = max(
            cached.get(home.replica_id) + p.branch_tokens_min,
            int(p.branch_share_min * request.prompt_tokens),
        )
        if cached.most <= most:
            return None
        best: list[ReplicaView] = []
        for tokens, ids in cached.levels():
            if tokens <= most:
                break
            for replica in _candidates_of(ids, request, fleet, p.weighed):
                held = cached.get(replica.replica_id)
                if held > most:
                    best, most = [replica], held
                elif held == most and best and replica not in best:
                    best.append(replica)
        return preferred(request.session_key, best) if best else None

    def _least(
        self,
        request: RouteRequest,
        weighed: Iterable[ReplicaView],
        *,
        is_new: bool = False,
        is_full: bool = False,
        floor_s: float,
        terms: Terms | None = None,
        seen: dict[str, Price] | None = None,
    ) -> tuple[ReplicaView, Price] | None:
        """The cheapest; equal ones (to the millisecond) by rendezvous rank. ``seen`` is told all that were priced.

        With ``terms`` the toll of a move counts; None then if all cost more than they allow.

        ``floor_s`` is the least that prefill takes anywhere. With it for the prefill, and without pressure,
        each price is bounded from below: in that order they are priced, until nobody left can be the cheapest.
        """
        p = self._p
        held_up_s, slowed_s = floor_s, request.output_tokens * p.neighbour_s_per_token
        if is_full:
            held_up_s, slowed_s = 0.0, slowed_s + p.full_inflight_s
        if is_new:
            token_s = p.session_s_per_token
            rows = [
                (
                    r.backlog_s
                    + r.decoding * held_up_s
                    + (r.inflight * slowed_s + r.live_tokens * token_s) * r.handicap,
                    r,
                )
                for r in weighed
            ]
        else:
            rows = [
                (r.backlog_s + r.decoding * floor_s + r.inflight * slowed_s * r.handicap, r)
                for r in weighed
            ]
        rows.sort(key=_BOUND)
        limit_s = inf if terms is None else terms.most_s + _TIE_S - floor_s - terms.toll_s(floor_s)
        least_ms: float = inf
        tied: list[tuple[ReplicaView, Price]] = []
        for bound_s, replica in rows:
            if bound_s > limit_s:
                break
            price = self._price(request, replica, is_new=is_new, is_full=is_full)
            if seen is not None:
                seen[replica.replica_id] = price
            total_s = price.total_s + (0.0 if terms is None else terms.toll_s(price.prefill_s))
            total_ms = round(total_s * 1e3)
            if total_ms < least_ms:
                least_ms, tied = total_ms, [(replica, price)]
                limit_s = min(limit_s, total_s + _TIE_S - floor_s)
            elif total_ms == least_ms:
                tied.append((replica, price))
        if len(tied) <= 1:
            return tied[0] if tied else None
        best = preferred(request.session_key, [replica for replica, _ in tied])
        return next(row for row in tied if row[0] is best)

    def _price(
        self,
        request: RouteRequest,
        replica: ReplicaView,
        *,
        is_new: bool = False,
        is_full: bool = False,
    ) -> Price:
        """``is_full``: in a full fleet what is new goes where the fewest wait to leave, not by whom its prefill holds up."""
        p = self._p
        cached, output_tokens = request.cached_tokens.get(replica.replica_id), request.output_tokens
        new_tokens = request.prompt_tokens - cached
        live_tokens, handicap = replica.live_tokens, replica.handicap
        prefill_s = replica.prefill_s(new_tokens, cached)
        slowed_s = output_tokens * p.neighbour_s_per_token
        if is_full:
            interference_s = replica.inflight * ((slowed_s + p.full_inflight_s) * handicap)
        else:
            interference_s = replica.decoding * prefill_s + replica.inflight * (slowed_s * handicap)
        pressure_s = 0.0
        over = new_tokens + output_tokens + live_tokens - p.room_ratio * replica.capacity_tokens
        if over > 0:
            pressed_tokens = int(over) if over < new_tokens else new_tokens
            pressure_s = replica.prefill_s(pressed_tokens, cached)
        if is_new:
            pressure_s += live_tokens * p.session_s_per_token * handicap
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


def _most_elsewhere(cached: CachedTokens, home_id: str) -> int:
    """The most tokens that any replica but ``home_id`` may hold."""
    for tokens, ids in cached.levels():
        if len(ids) > 1 or home_id not in ids:
            return tokens
    return 0


def _floor_s(request: RouteRequest, fleet: FleetView, cached_tokens: int) -> float:
    """The least that prefill takes where at most so many tokens are cached."""
    return fleet.least_prefill_s(request.prompt_tokens - cached_tokens, cached_tokens)


def _ranked(best: ReplicaView, request: RouteRequest, fleet: FleetView) -> list[ReplicaView]:
    """The chosen replica, then the least backlogged others."""
    rest = fleet.least_backlogged(RANKED_MAX, request.session_key)
    if best in rest:
        rest = [r for r in rest if r is not best]
    return [best, *rest[: RANKED_MAX - 1]]


def _ranking(ranked: tuple[str, ...], reason: str, prices: Mapping[str, Price]) -> Ranking:
    """Long prompts take turns, wherever they go."""
    return Ranking(ranked, reason, prices, takes_turns=True)


def _ids_of(replicas: Iterable[ReplicaView]) -> tuple[str, ...]:
    return tuple([replica.replica_id for replica in replicas])

"""SMG's ``cache_aware``, by its rule of 1.13 and by the older rule that sglang-router and vllm-router have.

SMG matches text in a tree of its own, which it fills when it routes. These read the router's prefix index,
which is filled when a replica begins to answer, and is bounded by what that replica can hold; and they
match all that the engine renders, where SMG sees neither tools nor tool calls. They are thus SMG's rules at
their best.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Final

from router.policy.ties import chosen, least, least_inflight, preferred
from router.policy.words import by, by_inflight, in_tokens, scored, seconds, told

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from router.policy.view import Explanation, FleetView, Ranking, ReplicaView, RouteRequest

_USED_MAX: Final = 0.999
_RULES: Final = {
    "match": "of those that hold most of the prompt, the least expected wait",
    "miss": "nobody holds over 0.3 of the prompt: the least expected wait",
    "spill": "all that hold most of the prompt are over the gate: the least expected wait of the others",
}


@dataclass(slots=True, frozen=True)
class SmgCacheAwareParameters:
    """SMG 1.13's defaults.

    ``match_ratio_min`` of the prompt must match. A holder is spilled past with over ``spill_factor`` times
    the mean and ``spill_margin`` more requests than it; the margin is capped at
    ``max(margin_floor, margin_sqrt * sqrt(mean))``. Vetoed is who reports ``waiting_max`` waiting requests
    or ``used_ratio_max`` of its KV tokens in use. The expected wait counts ``mean_prefill_tokens`` for a
    request that was dispatched since the last report, at ``tokens_per_s``, and ``kv_weight_s * k / (1 - k)``.
    """

    match_ratio_min: float = 0.3
    spill_margin: float = 64.0
    spill_factor: float = 1.5
    margin_floor: float = 4.0
    margin_sqrt: float = 2.0
    waiting_max: int = 8
    used_ratio_max: float = 0.8
    mean_prefill_tokens: int = 1_024
    tokens_per_s: float = 2_000.0
    kv_weight_s: float = 0.15


class SmgCacheAware:
    """The rule of SMG 1.13 for replicas reached over HTTP.

    The deepest holders of over 0.3 of the prompt, without those over the spill gate, compete on expected
    wait; if all of them are over it, all that are not do, and the chosen one becomes another holder. Without
    a match all compete. Who is overloaded is vetoed unless everybody is. Differs: throughput is the default
    of 2,000 tokens/s always, for replicas report none that means the same.
    """

    def __init__(self, parameters: SmgCacheAwareParameters | None = None) -> None:
        self._p = parameters or SmgCacheAwareParameters()

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """The holder with the least expected wait, a spill, or the least expected wait of all."""
        del dice
        key = request.session_key
        rivals, reason = self._rivals(request, fleet)
        return chosen(least(key, self._waits(rivals)), fleet, key, reason)

    def explain(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Explanation:
        """Who competes on expected wait, and what keeps the others out."""
        ranking, gate = self.rank(request, fleet, dice), self._gate(fleet)
        rivals, reason = self._rivals(request, fleet)
        ids = {r.replica_id for r in rivals}
        waits_s = {r.replica_id: wait_s for wait_s, r in self._waits(fleet.candidates)}
        least_s, fit = (
            waits_s[ranking.ranked[0]],
            {r.replica_id for r in self._fit(fleet.candidates)},
        )

        def tell(replica: ReplicaView) -> tuple[str, str]:
            wait_s = waits_s[replica.replica_id]
            if replica.replica_id in ids:
                more_s = wait_s - least_s
                longer = f"waits {by(more_s)} longer"
                why = longer if more_s else "the session's key ranks it lower"
            elif fit and replica.replica_id not in fit:
                why = f"overloaded: {replica.waiting} wait, {replica.used_ratio:.0%} of KV in use"
            elif replica.inflight > gate and reason != "miss":
                why = f"over the gate of {gate:.1f} in flight"
            else:
                why = "holds less of the prompt"
            return f"wait {seconds(wait_s)}, {replica.inflight} in flight", why

        return told(ranking, fleet, _RULES[reason], tell)

    def _rivals(self, request: RouteRequest, fleet: FleetView) -> tuple[Sequence[ReplicaView], str]:
        """Those that compete on expected wait, and by which part of the rule."""
        gate = self._gate(fleet)
        deepest = deepest_holders(request, fleet, self._p.match_ratio_min)
        holders = self._fit(deepest)
        under = [r for r in holders if r.inflight <= gate]
        if under:
            return under, "match"
        fit: Sequence[ReplicaView] = self._fit(fleet.candidates)
        if not fit:
            fit, holders = fleet.candidates, deepest
            under = [r for r in holders if r.inflight <= gate]
            if under:
                return under, "match"
        if not holders:
            return fit, "miss"
        others = [r for r in fit if r.inflight <= gate]
        # All over the gate: there is nobody to spill to.
        return others or holders, "spill"

    def _gate(self, fleet: FleetView) -> float:
        """The most requests in flight that a holder may have: both thresholds must be passed."""
        p = self._p
        mean = fleet.inflight_sum / max(1, fleet.n_ready)
        margin = min(p.spill_margin, max(p.margin_floor, p.margin_sqrt * sqrt(mean)))
        return max(p.spill_factor * mean, mean + margin)

    def _fit(self, replicas: Sequence[ReplicaView]) -> list[ReplicaView]:
        """Those that are not overloaded."""
        waiting_max, used_max = self._p.waiting_max, self._p.used_ratio_max
        return [r for r in replicas if r.waiting < waiting_max and r.used_ratio < used_max]

    def _waits(self, replicas: Sequence[ReplicaView]) -> list[tuple[float, ReplicaView]]:
        p = self._p
        per_request, per_s, weight_s = p.mean_prefill_tokens, p.tokens_per_s, p.kv_weight_s
        waits = []
        for replica in replicas:
            used = min(replica.used_ratio, _USED_MAX)
            n_tokens = replica.waiting_tokens + per_request * replica.unreported
            waits.append((n_tokens / per_s + weight_s * used / (1.0 - used), replica))
        return waits


@dataclass(slots=True, frozen=True)
class SmgCacheAwareOldParameters:
    """Defaults of sglang-router 0.3 and vllm-router.

    The whole fleet is out of balance with a spread of over ``spread_max`` requests and the most over
    ``spread_factor`` times the fewest. ``match_ratio_min`` of the prompt must match.
    """

    match_ratio_min: float = 0.3
    spread_max: int = 64
    spread_factor: float = 1.5


class SmgCacheAwareOld:
    """The older rule: while the fleet is out of balance nobody is sent to a holder.

    Then every request goes to the fewest in flight; else to the deepest holder of over 0.3 of the prompt;
    else to the replica with the smallest tree, which is here the fewest bytes held.
    """

    def __init__(self, parameters: SmgCacheAwareOldParameters | None = None) -> None:
        self._p = parameters or SmgCacheAwareOldParameters()

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """The least loaded, the deepest holder, or the smallest tree."""
        del dice
        p, key = self._p, request.session_key
        most, fewest = fleet.inflight_most, least_inflight(fleet, key)
        if most - fewest.inflight > p.spread_max and most > p.spread_factor * fewest.inflight:
            return chosen(fewest, fleet, key, "imbalance")
        holders = deepest_holders(request, fleet, p.match_ratio_min)
        if holders:
            return chosen(preferred(key, holders), fleet, key, "match")
        smallest = least(key, [(float(r.held_bytes), r) for r in fleet.candidates])
        return chosen(smallest, fleet, key, "miss")

    def explain(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Explanation:
        """By the fewest in flight, the deepest holders, or the bytes held."""
        p, ranking = self._p, self.rank(request, fleet, dice)
        if ranking.reason == "imbalance":
            rule = f"the fleet is out of balance, by over {p.spread_max}: the fewest in flight"
            return by_inflight(ranking, fleet, rule)
        if ranking.reason == "miss":
            sizes = {r.replica_id: float(r.held_bytes) for r in fleet.candidates}
            rule = f"nobody holds over {p.match_ratio_min} of the prompt: the fewest bytes held"
            return scored(ranking, fleet, rule, sizes, "bytes")
        cached, first = request.cached_tokens, ranking.ranked[0]

        def tell(replica: ReplicaView) -> tuple[str, str]:
            held = cached.get(replica.replica_id)
            fewer = cached.get(first) - held
            why = f"holds {in_tokens(fewer)} less" if fewer else "the session's key ranks it lower"
            return f"holds {in_tokens(held)}", why

        return told(ranking, fleet, "who holds most of the prompt, whatever the load", tell)


def deepest_holders(request: RouteRequest, fleet: FleetView, ratio_min: float) -> list[ReplicaView]:
    """The candidates that hold most of the prompt, if that is over ``ratio_min`` of it."""
    cached, most = request.cached_tokens, ratio_min * request.prompt_tokens
    best: list[ReplicaView] = []
    for tokens, ids in cached.levels():
        if tokens <= most:
            break
        for replica_id in ids:
            held = cached.get(replica_id)
            if held < most or not held:
                continue
            replica = fleet.candidate(replica_id)
            if replica is None:
                continue
            if held > most:
                best, most = [replica], held
            elif best:
                best.append(replica)
        if best:
            break  # who holds no more than the level below holds less than these
    return best

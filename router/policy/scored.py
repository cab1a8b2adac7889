"""Baselines that score every replica by one formula: Dynamo's KV router and llm-d's scorers.

Both look at the whole fleet for each request, as their sources do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.policy.ties import chosen, least
from router.policy.words import scored

if TYPE_CHECKING:
    import random

    from router.policy.view import Explanation, FleetView, Ranking, ReplicaView, RouteRequest


@dataclass(slots=True, frozen=True)
class DynamoKvParameters:
    """Dynamo 1.6.1's defaults: ``overlap_credit`` 1, ``prefill_scale`` 1, temperature 0 (no dice).

    ``block_tokens``: SGLang's page with its MLA backends.
    """

    overlap_credit: float = 1.0
    prefill_scale: float = 1.0
    block_tokens: int = 64


class DynamoKv:
    """NVIDIA Dynamo's ``kv`` mode: prefill to be computed plus blocks in use, the least wins.

    ``cost = scale * max(active prefill + new - credit * cached, 0) / block + decode blocks``, with this
    request counted in at each replica. Differs: equal costs go by rendezvous, not by dice; each request's
    blocks are counted as its own, where Dynamo counts a shared prefix once; cached tokens are the router's
    belief, not the engine's events.
    """

    def __init__(self, parameters: DynamoKvParameters | None = None) -> None:
        self._p = parameters or DynamoKvParameters()

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """The least cost."""
        del dice
        key = request.session_key
        return chosen(least(key, self._costs(request, fleet)), fleet, key, "least-cost")

    def explain(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Explanation:
        """What each costs, in blocks."""
        costs = {r.replica_id: cost for cost, r in self._costs(request, fleet)}
        rule = "the least prefill to compute plus KV in use, in blocks, with this request"
        return scored(self.rank(request, fleet, dice), fleet, rule, costs, "cost")

    def _costs(self, request: RouteRequest, fleet: FleetView) -> list[tuple[float, ReplicaView]]:
        p, prompt = self._p, request.prompt_tokens
        scale, credit, block = p.prefill_scale, p.overlap_credit, p.block_tokens
        cached_of, rounded = request.cached_tokens.everyone().get, prompt + block - 1
        rows = [
            (r.prefill_tokens + prompt - credit * cached_of(r.replica_id, 0), r.inflight_tokens, r)
            for r in fleet.candidates
        ]
        return [
            (scale * (prefill if prefill > 0 else 0.0) / block + (tokens + rounded) // block, r)
            for prefill, tokens, r in rows
        ]


@dataclass(slots=True, frozen=True)
class LlmDParameters:
    """llm-d-router's default profile: weights of its prefix, queue and KV utilisation scorers."""

    prefix_weight: float = 3.0
    queue_weight: float = 2.0
    used_weight: float = 2.0


class LlmD:
    """llm-d's weighted scorers and its max-score picker.

    Prefix: the share of the prompt that is cached. Queue: from 1 for the fewest waiting requests to 0 for
    the most. KV: the share of tokens that is free. Differs: equal scores go by rendezvous, not by dice;
    reports are probed each second, where llm-d scrapes each 50 ms; prefixes are the router's belief.
    """

    def __init__(self, parameters: LlmDParameters | None = None) -> None:
        self._p = parameters or LlmDParameters()

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """The greatest sum of scores."""
        del dice
        key = request.session_key
        return chosen(least(key, self._scores(request, fleet)), fleet, key, "best-score")

    def explain(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Explanation:
        """Each one's score, negative: the least is the best."""
        scores = {r.replica_id: score for score, r in self._scores(request, fleet)}
        rule = "the best score of share cached, short queue and free KV; the least is the best"
        return scored(self.rank(request, fleet, dice), fleet, rule, scores, "score")

    def _scores(self, request: RouteRequest, fleet: FleetView) -> list[tuple[float, ReplicaView]]:
        p = self._p
        cached_of = request.cached_tokens.everyone().get
        candidates = fleet.candidates
        queues = [r.waiting for r in candidates]
        most, spread = max(queues), max(queues) - min(queues)
        prefix_weight, used_weight = p.prefix_weight / request.prompt_tokens, p.used_weight
        # Queues are few different numbers.
        by_queue = {
            n: p.queue_weight * ((most - n) / spread if spread else 1.0) for n in set(queues)
        }
        return [
            (
                -(
                    prefix_weight * cached_of(r.replica_id, 0)
                    + by_queue[waiting]
                    + used_weight * (1.0 - r.used_ratio)
                ),
                r,
            )
            for r, waiting in zip(candidates, queues, strict=True)
        ]

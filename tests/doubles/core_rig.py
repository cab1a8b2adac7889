"""A core with ready replicas, and one whole request through it."""

from __future__ import annotations

import random

from router.core import CoreParameters, RouterCore
from router.dialect.base import PromptFacts, Usage
from router.policy import registry
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event
from router.state.history import Outcome


def make_core(
    n: int = 3, *, policy: str = "home", parameters: CoreParameters | None = None
) -> RouterCore:
    core = RouterCore(registry.make(policy), random.Random(1), parameters)
    for i in range(n):
        spec = ReplicaSpec(f"r{i}", "127.0.0.1", 31_000 + i, capacity_tokens=1_000_000)
        core.members.join(spec, 0.0)
        core.members.heard(f"r{i}", Event.PROBE_OK, 0.0)
    return core


def serve(core: RouterCore, facts: PromptFacts, now_s: float, *, cached: int = 0) -> str:
    """One request from arrival to a good end; answers where it was served."""
    ticket = core.arrive(facts, now_s)
    core.began(ticket, now_s + 0.1)
    usage = Usage(len(facts.chain) * 1_000, 100, cached)
    core.finish(ticket, Outcome.DONE, now_s + 1.0, usage=usage)
    return ticket.replica_id


def all_idle(core: RouterCore) -> bool:
    return all(
        (load.inflight, load.inflight_tokens, load.backlog_us, load.decoding) == (0, 0, 0, 0)
        for load in (core.ledger.load(r.replica_id) for r in core.fleet.replicas())
    )

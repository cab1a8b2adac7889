"""Small fleets as tables of numbers, and one request before them, for tests of policies."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.policy.view import RouteRequest
from router.state.cache.prefix_index import Holdings
from router.state.fleet.candidates import View
from router.state.fleet.ledger import Load
from router.state.fleet.replica import Observation, Replica, ReplicaSpec
from router.state.sessions.pins import HomeTotals
from tests.doubles.held_tokens import HeldTokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.policy.view import Policy, Ranking


@dataclass(frozen=True)
class Row:
    """What a policy reads of one replica; ``waiting`` and what follows are its report's."""

    inflight: int = 0
    inflight_tokens: int = 0
    prefill_tokens: int = 0
    decoding: int = 0
    backlog_s: float = 0.0
    live_sessions: int = 0
    live_tokens: int = 0
    capacity_tokens: int = 7_000_000
    held_bytes: int = 0
    waiting: int = 0
    waiting_tokens: int = 0
    used_ratio: float = 0.0
    ours: int = 0
    reports: bool = True
    weight: float = 1.0

    def replica(self, name: str) -> Replica:
        load = Load(
            self.inflight,
            self.inflight_tokens,
            self.decoding,
            round(self.backlog_s * 1e6),
            self.prefill_tokens,
        )
        found = Replica(
            ReplicaSpec(name, "h", 1),
            load,
            HomeTotals(self.live_sessions, self.live_tokens),
            capacity_tokens=self.capacity_tokens,
            weight=self.weight,
        )
        found.holdings = Holdings(1 << 40, self.held_bytes)
        if self.reports:
            found.observed = found.report = Observation(
                0,
                self.waiting,
                self.waiting_tokens,
                0.0,
                ours=self.ours,
                used_ratio=self.used_ratio,
            )
        return found


def fleet(*rows: Row) -> View:
    """The rows as r0, r1, ..."""
    return View.of([row.replica(f"r{n}") for n, row in enumerate(rows)])


def busy(*inflight: int) -> View:
    """Replicas with so many requests in flight, all of them in their reports."""
    return fleet(*[Row(inflight=n, ours=n) for n in inflight])


def request(cached: dict[str, int] | None = None, **changes: object) -> RouteRequest:
    """A new session's prompt of 10,000 tokens, unless told otherwise."""
    fields: dict[str, object] = {
        "session_key": "s",
        "prompt_tokens": 10_000,
        "output_tokens": 500,
        "serial": 1,
        "home_id": None,
        "home_age_s": 600.0,
        "session_inflight": 0,
        "is_auxiliary": False,
        "head_key": 1 << 63,
    }
    fields |= changes | {"cached_tokens": HeldTokens(cached or {})}
    return RouteRequest(**fields)  # type: ignore[arg-type]


def ranked(policy: Policy, view: View, asked: RouteRequest) -> Ranking:
    """The policy's answer, with dice of a fixed seed."""
    return policy.rank(asked, view, random.Random(1))


def choices(policy: Policy, view: View, keys: Sequence[str]) -> list[tuple[str, str]]:
    """Where new sessions of these keys go, and why."""
    found = [ranked(policy, view, request(session_key=key)) for key in keys]
    return [(ranking.ranked[0], ranking.reason) for ranking in found]

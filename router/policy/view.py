"""What a policy sees and what it answers.

The fleet view is live and read-only for a policy: it is neither copied nor changed during a
decision, and nothing in it may be kept beyond the call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence


@dataclass(slots=True)
class RouteRequest:
    """One request as a policy sees it; tokens are the router's estimates.

    ``home_id`` is the replica the session is pinned to, None for a new session; ``home_age_s`` says
    for how long. ``session_inflight``
    counts the session's requests already in flight at its home. ``cached_tokens`` maps each replica
    that probably holds a part of the prompt to the tokens it holds, never more than
    ``prompt_tokens - 1``. ``serial`` grows by one with each decision.
    """

    session_key: str
    prompt_tokens: int
    output_tokens: int
    serial: int
    home_id: str | None
    home_age_s: float
    session_inflight: int
    is_auxiliary: bool
    cached_tokens: Mapping[str, int]


class ReplicaView(Protocol):
    """One replica as a policy sees it. Times are engine seconds, tokens are estimates."""

    @property
    def replica_id(self) -> str:
        """Stable name; opaque."""

    @property
    def inflight(self) -> int:
        """Requests dispatched to it and not finished: ours, plus what it reported of others'."""

    @property
    def inflight_tokens(self) -> int:
        """Prompt and expected output tokens of those requests."""

    @property
    def live_sessions(self) -> int:
        """Sessions whose home it is and that were seen lately."""

    @property
    def live_tokens(self) -> int:
        """The live working set: the last prompt and output of each of those sessions, summed."""

    @property
    def capacity_tokens(self) -> int:
        """KV tokens it can hold, device and host tier together; at least 1."""

    @property
    def backlog_s(self) -> float:
        """Seconds of prefill dispatched or waiting that have not begun to answer."""

    @property
    def decoding(self) -> int:
        """Requests of ours that are past their first event."""

    def prefill_s(self, new_tokens: int, cached_tokens: int) -> float:
        """Seconds to prefill ``new_tokens`` behind ``cached_tokens``."""


class FleetView(Protocol):
    """The replicas that may take this request: ready, not draining, below their limit, not tried."""

    @property
    def candidates(self) -> Sequence[ReplicaView]:
        """In a fixed order (by id); never empty when a policy is asked."""

    def candidate(self, replica_id: str) -> ReplicaView | None:
        """The candidate of this id, None if it cannot take the request now."""


@dataclass(slots=True, frozen=True)
class Price:
    """What a choice costs, in seconds, by named part.

    A baseline published as counts or scores has parts without a price: all zero.
    """

    wait_s: float = 0.0
    prefill_s: float = 0.0
    interference_s: float = 0.0
    pressure_s: float = 0.0

    @property
    def total_s(self) -> float:
        """The sum of the parts."""
        return self.wait_s + self.prefill_s + self.interference_s + self.pressure_s


@dataclass(slots=True, frozen=True)
class Ranking:
    """A policy's answer: replica ids from best to worst (the first is chosen), why, and the prices.

    ``prices`` holds at least the chosen replica's price, and that of the home where it was weighed.
    """

    ranked: tuple[str, ...]
    reason: str
    prices: Mapping[str, Price]


class Policy(Protocol):
    """Ranks the candidates of a fleet for one request.

    A function of its arguments: equal view, request and dice give an equal ranking. It names
    candidates only, each at most once, and names at least one.
    """

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """Answer the candidates in order of preference."""

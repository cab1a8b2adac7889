"""What a policy sees and what it answers.

The fleet view is live and read-only for a policy: it is neither copied nor changed during a
decision, and nothing in it may be kept beyond the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from router.rows import Row

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from router.policy.ring import Ring


class CachedTokens(Protocol):
    """How many tokens of one prompt each replica probably holds, never more than all but one.

    Valid during the decision only.
    """

    def get(self, replica_id: str, default: int = 0, /) -> int:
        """The tokens of one replica; ``default`` if it holds none."""

    @property
    def most(self) -> int:
        """The most that any replica may hold: the first level's."""

    def levels(self) -> Iterable[tuple[int, Collection[str]]]:
        """Holders from those of the most on: the most that any of them may hold, and their ids.

        Ids come again in the levels below; what one holds, ``get`` tells. A look for who holds more
        than so many tokens ends at the first level of no more.
        """

    def everyone(self) -> Mapping[str, int]:
        """The tokens of all that hold any, for who looks at the whole fleet anyway."""


class RouteRequest(Row):
    """One request as a policy sees it; tokens are the router's estimates.

    ``home_id`` is the replica the session is pinned to, None for a new session; ``home_age_s`` says
    for how long. ``session_inflight`` counts the session's requests already in flight at its home.
    ``head_key`` is a hash of the prompt's first 256 tokens (of the whole segments that contain them),
    0 if the prompt could not be read. ``serial`` grows by one with each decision. ``is_apart``: other routers
    decide on the same sessions and are not heard, so a home is to be chosen as they would choose it.
    """

    session_key: str
    prompt_tokens: int
    output_tokens: int
    serial: int
    home_id: str | None
    home_age_s: float
    session_inflight: int
    is_auxiliary: bool
    cached_tokens: CachedTokens
    head_key: int = 0
    is_apart: bool = False


class ReplicaView(Protocol):
    """One replica as a policy sees it. Times are engine seconds, tokens are estimates.

    Its seconds are divided by its weight, the share of the work that it should get: a price made of them
    has the weight in it. Counts and tokens are as they are, for rules that have no price.
    """

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
    def prefill_tokens(self) -> int:
        """Tokens to be computed of our requests that have not begun to answer."""

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
    def held_bytes(self) -> int:
        """Canonical bytes of prompts it is believed to hold."""

    @property
    def backlog_s(self) -> float:
        """Seconds of prefill dispatched or waiting that have not begun to answer."""

    @property
    def handicap(self) -> float:
        """What a price multiplies counts and tokens with: 1 / weight."""

    @property
    def decoding(self) -> int:
        """Requests of ours that are past their first event."""

    @property
    def waiting(self) -> int:
        """Requests in its queue, as it reported last; 0 where that is not known."""

    @property
    def waiting_tokens(self) -> int:
        """Uncached tokens of those requests, as it reported last; 0 where that is not known."""

    @property
    def used_ratio(self) -> float:
        """The share of its KV tokens in use (0 to 1), as it reported last; 0 where not known."""

    @property
    def unreported(self) -> int:
        """Requests of ours in flight beyond those that its last report contains."""

    def prefill_s(self, new_tokens: int, cached_tokens: int, /) -> float:
        """Seconds to prefill ``new_tokens`` behind ``cached_tokens``; more cached never costs more."""


class FleetView(Protocol):
    """The replicas that may take this request: ready, not draining, below their limit, not tried.

    Reading the least by some number costs by ``k``, not by the size of the fleet. Where several are
    equal, which of them come first depends on ``key`` (the session's), and never on their order.
    """

    @property
    def candidates(self) -> Sequence[ReplicaView]:
        """All of them by id, never empty when a policy is asked; a look at each costs by their number."""

    @property
    def n_ready(self) -> int:
        """How many replicas are ready, whether at their limit or not."""

    @property
    def inflight_sum(self) -> int:
        """Requests in flight of all that are ready, whether at their limit or not."""

    @property
    def inflight_most(self) -> int:
        """The most requests that any of those has in flight."""

    @property
    def fill_ratio(self) -> float:
        """The live working sets of all that are ready over what they can hold: above 1 where not all find room."""

    def candidate(self, replica_id: str) -> ReplicaView | None:
        """The candidate of this id, None if it cannot take the request now."""

    def least_backlogged(self, k: int, key: str) -> Sequence[ReplicaView]:
        """At most ``k`` candidates, the least backlog first; at least one."""

    def least_inflight(self, k: int, key: str) -> Sequence[ReplicaView]:
        """At most ``k`` candidates, the fewest requests in flight first; at least one."""

    def least_lived_in(self, k: int, key: str) -> Sequence[ReplicaView]:
        """At most ``k`` candidates, the smallest live working set first; at least one."""

    @property
    def least_backlog_s(self) -> float:
        """No candidate's backlog is less than that."""

    def least_prefill_s(self, new_tokens: int, cached_tokens: int) -> float:
        """The least seconds that any ready replica needs to prefill ``new_tokens``, whatever its load."""

    def ring(self, points: int) -> Ring:
        """All known replicas, candidates or not, at so many points each of a consistent-hash ring."""


class Price(Row):
    """What a choice costs, in seconds, by named part; not changed after it is built.

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


class Ranking(Row):
    """A policy's answer: replica ids from best to worst (the first is chosen), why, and the prices.

    Not changed after it is built. ``ranked`` may leave candidates out: a retry asks anew. ``prices`` holds the chosen replica's price,
    that of the home where it was weighed, and at most those of the others in ``ranked``. ``takes_turns``: where much of
    the prompt is to be computed, the request had better wait at the door while the chosen replica computes another long one.
    """

    ranked: tuple[str, ...]
    reason: str
    prices: Mapping[str, Price]
    takes_turns: bool = False


class Weighed(Row):
    """One candidate as a policy's rule sees it.

    ``compared`` is what the rule compares, in words; ``why_not`` why this one was not chosen, in one phrase,
    "" for the chosen one. ``price`` None: the policy prices nothing.
    """

    replica_id: str
    compared: str
    why_not: str
    price: Price | None = None


class Explanation(Row):
    """A ranking with its reasons: the rule that decided, in one phrase, and every candidate, by id."""

    ranking: Ranking
    rule: str
    candidates: tuple[Weighed, ...]


class Policy(Protocol):
    """Ranks the candidates of a fleet for one request.

    A function of its arguments: equal view, request and dice give an equal ranking. It names
    candidates only, each at most once, and names at least one.
    """

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """Answer the candidates in order of preference."""

    def explain(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Explanation:
        """What ``rank`` answers to the same arguments, and why; it looks at every candidate."""

"""One replica as the router believes it to be, and what it is told of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from router.state.cache.keeping import Keeping
from router.state.health.progress import Progress
from router.state.health.standing import Standing
from router.state.health.table import State
from router.state.rates.learner import PrefillLearner
from router.state.rates.prefill import PrefillRate

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.state.cache.prefix_index import Holdings
    from router.state.fleet.ledger import Load
    from router.state.sessions.pins import HomeTotals


@dataclass(slots=True, frozen=True)
class ReplicaSpec:
    """What is known of a replica when it joins.

    ``capacity_tokens`` is device and host tier together, None if not known yet. ``lease_s`` None
    means it stays until it is removed. ``source`` says who named it: static or registered.
    ``is_tls``: it is spoken to over TLS. ``rate`` is what its profile says of its prefills. ``api_key`` is its own key, None for the fleet's.
    """

    replica_id: str
    host: str
    port: int
    source: str = "static"
    capacity_tokens: int | None = None
    profile: str | None = None
    inflight_max: int | None = None
    lease_s: float | None = None
    is_tls: bool = False
    rate: PrefillRate | None = None
    api_key: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"


@dataclass(slots=True, frozen=True)
class Description:
    """What a replica says it is: KV tokens it can hold, the emulated hardware, the models it serves.

    ``adapters`` are those it has loaded, each as ``model:adapter``.
    ``reports_cached``: its answers tell how much of a prompt was cached, so that no word means none
    (SGLang leaves a count of zero out of ``/v1/messages``).
    ``n_caches``: data-parallel ranks, each with a cache of its own; which one served is not told.
    ``started`` differs between processes, "" if it does not tell. ``chunk_tokens`` is the most that it
    computes of prompts in one step, 0 if it does not tell. ``rate`` is what it says of its prefills.
    ``has_priorities``: its queue goes by the priority that a request has; ``is_short_first``: by the tokens to be computed, the
    fewest first.
    """

    capacity_tokens: int | None = None
    profile: str | None = None
    models: tuple[str, ...] = ()
    reports_cached: bool = False
    adapters: tuple[str, ...] = ()
    n_caches: int = 1
    started: str = ""
    chunk_tokens: int = 0
    rate: PrefillRate | None = None
    has_priorities: bool = False
    is_short_first: bool = False


@dataclass(slots=True, frozen=True)
class RankLoad:
    """One data-parallel rank's part of a load report."""

    rank: int
    running: int
    waiting: int
    waiting_uncached_tokens: int
    used_ratio: float = 0.0


@dataclass(slots=True)
class Observation:
    """What a replica's load report said, and when we saw it. Not changed after it is built.

    ``ours`` and ``ours_backlog_s`` are our own share at that time, from the ledger: the report
    contains our requests, so only what exceeds them is foreign load. ``used_ratio`` is the share of
    its KV tokens that is in use (0 to 1), 0 where that is not known. ``stamp`` is how its ranks marked the
    report, each by its own clock: with equal marks it is the same one, read again. ``prefill_tokens`` and
    ``prefill_busy_us`` are counters: uncached prompt tokens computed, and microseconds busy with that.
    ``heard_s`` is when an answer from there last brought something, 0 if none has.
    """

    running: int
    waiting: int
    waiting_uncached_tokens: int
    seen_s: float
    ours: int = 0
    ours_backlog_s: float = 0.0
    used_ratio: float = 0.0
    stamp: tuple[float, ...] = ()
    prefill_tokens: int = 0
    prefill_busy_us: int = 0
    heard_s: float = 0.0
    ranks: tuple[RankLoad, ...] = ()


@dataclass(slots=True)
class Counters:
    """Totals since the replica joined.

    ``cache_losses``: reports of a smaller cache than was believed, which cost ``lost_bytes`` of belief.
    ``stalls``: times its scheduler stood still.
    """

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    failures: int = 0
    cache_losses: int = 0
    lost_bytes: int = 0
    stalls: int = 0


class PeerLoad(NamedTuple):
    """What other routers have in flight at one replica, as they told last; as in ``Load``."""

    inflight: int = 0
    inflight_tokens: int = 0
    decoding: int = 0
    backlog_us: int = 0
    prefill_tokens: int = 0


NO_PEERS: Final = PeerLoad()

_CAPACITY_TOKENS_UNKNOWN: Final = 500_000
"""Assumed until the replica says more: about what TP4 on a B200 leaves at a memory fraction of 0.9."""


@dataclass(slots=True, eq=False)
class Replica:
    """One replica as the router believes it to be; a policy reads it as a ``ReplicaView``.

    ``observed`` is its last load report, ``report`` the same until it is too old to be believed.
    ``serves`` names its models and adapters, nothing until it has said.
    ``drain_until_s`` is when a drain ends with its removal at the latest, None for never;
    ``leaves_drained``: it is removed as soon as a drain has left nothing of ours in flight there.
    ``weight`` is the share of the work it should get next to a peer with 1: what it does counts 1/weight for
    a policy. ``rate`` tells how long it truly computes, ``prefill_s`` (seconds to prefill so many new tokens
    behind so many cached ones) and ``priced`` what a policy reads of that; who changes rate or weight calls
    ``reprice``. ``replica_id`` is its spec's and never changes.
    ``capacity_tokens`` is what it is believed to hold, ``stated_tokens`` what it was said to. ``allowance``:
    requests in flight that it may have while it is on trial or has just come back. ``full_s`` and ``stalled_s`` are
    when it last became that, ``foreign_s`` when it last told of others' requests. Of these ``peers`` are those that
    other routers told of, ``others_inflight`` and ``others_backlog_s`` what nobody told but its report.
    """

    spec: ReplicaSpec
    load: Load
    home: HomeTotals
    state: State = State.STARTING
    rate: PrefillRate = field(default_factory=PrefillRate)
    is_rate_told: bool = False
    learner: PrefillLearner = field(default_factory=PrefillLearner)
    standing: Standing = field(default_factory=Standing)
    progress: Progress = field(default_factory=Progress)
    keeping: Keeping = field(default_factory=Keeping)
    allowance: int | None = None
    full_s: float = 0.0
    stalled_s: float = 0.0
    foreign_s: float = -inf
    weight: float = 1.0
    capacity_tokens: int = _CAPACITY_TOKENS_UNKNOWN
    stated_tokens: int = _CAPACITY_TOKENS_UNKNOWN
    inflight_max: int | None = None
    lease_until_s: float | None = None
    drain_until_s: float | None = None
    leaves_drained: bool = False
    ready_s: float | None = None
    holdings: Holdings | None = None
    observed: Observation | None = None
    report: Observation | None = None
    peers: PeerLoad = NO_PEERS
    others_inflight: int = 0
    others_backlog_s: float = 0.0
    foreign_inflight: int = 0
    foreign_backlog_s: float = 0.0
    foreign_backlog_us: int = 0
    models: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()
    profile: str | None = None
    reports_cached: bool = False
    n_caches: int = 1
    started: str = ""
    chunk_tokens: int = 0
    has_priorities: bool = False
    is_short_first: bool = False
    counters: Counters = field(default_factory=Counters)
    replica_id: str = field(init=False)
    handicap: float = field(init=False)
    share: float = field(init=False)
    priced: PrefillRate = field(init=False)
    prefill_s: Callable[[int, int], float] = field(init=False)

    def __post_init__(self) -> None:
        self.replica_id = self.spec.replica_id
        self.reprice()

    def reprice(self) -> None:
        """Its rate or its weight has changed: what policies read follows."""
        self.handicap = 1.0 / self.weight
        self.share = self.handicap / self.n_caches  # its ranks compute side by side
        self.priced = self.rate.scaled(self.handicap)
        self.prefill_s = self.priced.prefill_s

    @property
    def inflight(self) -> int:
        """Requests of ours, and what it reported beyond them."""
        return self.load.inflight + self.foreign_inflight

    @property
    def inflight_tokens(self) -> int:
        """Prompt and expected output tokens of our requests and the other routers'."""
        return self.load.inflight_tokens + self.peers.inflight_tokens

    @property
    def decoding(self) -> int:
        """Requests of ours, and of other routers, past their first event."""
        return self.load.decoding + self.peers.decoding

    @property
    def prefill_tokens(self) -> int:
        """Tokens to be computed of our requests, and the other routers', that have not begun to answer."""
        return self.load.prefill_tokens + self.peers.prefill_tokens

    @property
    def prefill_ahead_s(self) -> float:
        """Seconds of prefill ahead of a request that is sent now."""
        return (self.load.backlog_us / 1e6 + self.foreign_backlog_s) / self.n_caches

    @property
    def backlog_s(self) -> float:
        """The same as a policy reads it: divided by the weight."""
        backlog_s = self.load.backlog_us / 1e6 + self.foreign_backlog_s
        return backlog_s if self.share == 1.0 else backlog_s * self.share

    @property
    def backlog_us(self) -> int:
        """That in whole microseconds."""
        backlog_us = self.load.backlog_us + self.foreign_backlog_us
        return backlog_us if self.share == 1.0 else int(backlog_us * self.share)

    @property
    def waiting(self) -> int:
        """Requests that wait in its queue, as it reported last; 0 if it did not."""
        return 0 if self.report is None else self.report.waiting

    @property
    def waiting_tokens(self) -> int:
        """Uncached tokens of those requests, as it reported last."""
        return 0 if self.report is None else self.report.waiting_uncached_tokens

    @property
    def used_ratio(self) -> float:
        """The share of its KV tokens in use, as it reported last; 0 if it did not."""
        return 0.0 if self.report is None else self.report.used_ratio

    @property
    def unreported(self) -> int:
        """Requests of ours in flight beyond those that its last report contains."""
        inflight = self.load.inflight
        return inflight if self.report is None else max(0, inflight - self.report.ours)

    @property
    def held_bytes(self) -> int:
        """Canonical bytes of prompts it is believed to hold."""
        return 0 if self.holdings is None else self.holdings.held_bytes

    @property
    def live_sessions(self) -> int:
        """Sessions at home here, seen lately."""
        return self.home.live_sessions

    @property
    def live_tokens(self) -> int:
        """Their tokens."""
        return self.home.live_tokens

    @property
    def is_rate_known(self) -> bool:
        """How fast it computes was told or learned."""
        return self.is_rate_told or self.learner.rate is not None

    @property
    def weighed_tokens(self) -> int:
        """The same divided by the weight: how full it is next to its peers."""
        live_tokens = self.home.live_tokens
        return live_tokens if self.weight == 1.0 else int(live_tokens * self.handicap)

    @property
    def is_full(self) -> bool:
        """At its limit of requests in flight."""
        return self.inflight_max is not None and self.load.inflight >= self.inflight_max

    @property
    def is_at_allowance(self) -> bool:
        """It has as many as it may have while it comes back."""
        return self.allowance is not None and self.load.inflight >= self.allowance

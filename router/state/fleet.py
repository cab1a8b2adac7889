"""The live fleet view: every replica with its beliefs, and who may take a request.

Nothing is copied for a decision: a policy reads the replicas themselves, and the sums it needs are
kept as requests and pins come and go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from router.policy.ring import Rings
from router.state.by_model import ByModel, Offers, eligible, may_serve
from router.state.candidates import Eligible, View
from router.state.health import Event, State, follow
from router.state.rates import PrefillRate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from router.state.candidates import Candidate
    from router.state.ledger import Ledger, Load
    from router.state.prefix_index import Holdings
    from router.state.sessions.pins import HomeTotals, Pins


@dataclass(slots=True, frozen=True)
class ReplicaSpec:
    """What is known of a replica when it joins.

    ``capacity_tokens`` is device and host tier together, None if not known yet. ``lease_s`` None
    means it stays until it is removed. ``source`` says who named it: static or registered.
    ``is_tls``: it is spoken to over TLS. ``api_key`` is its own key, None for the fleet's.
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
    """

    capacity_tokens: int | None = None
    profile: str | None = None
    models: tuple[str, ...] = ()
    reports_cached: bool = False
    adapters: tuple[str, ...] = ()
    n_caches: int = 1


@dataclass(slots=True)
class Observation:
    """What a replica's load report said, and when we saw it. Not changed after it is built.

    ``ours`` and ``ours_backlog_s`` are our own share at that time, from the ledger: the report
    contains our requests, so only what exceeds them is foreign load. ``used_ratio`` is the share of
    its KV tokens that is in use (0 to 1), 0 where that is not known.
    """

    running: int
    waiting: int
    waiting_uncached_tokens: int
    seen_s: float
    ours: int = 0
    ours_backlog_s: float = 0.0
    used_ratio: float = 0.0


@dataclass(slots=True)
class Counters:
    """Totals since the replica joined.

    ``cache_losses``: reports of a smaller cache than was believed, which cost ``lost_bytes`` of belief.
    """

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    failures: int = 0
    cache_losses: int = 0
    lost_bytes: int = 0


_READY: Final = State.READY
_SUSPECT: Final = State.SUSPECT

_CAPACITY_TOKENS_UNKNOWN: Final = 500_000
"""Assumed until the replica says more: about what TP4 on a B200 leaves at a memory fraction of 0.9."""


@dataclass(slots=True, eq=False)
class Replica:
    """One replica as the router believes it to be; a policy reads it as a ``ReplicaView``.

    ``observed`` is its last load report, ``report`` the same until it is too old to be believed.
    ``serves`` names its models and adapters, nothing until it has said.
    ``replica_id`` is its spec's and ``prefill_s`` its rate's (seconds to prefill so many new tokens behind
    so many cached ones): both never change.
    """

    spec: ReplicaSpec
    load: Load
    home: HomeTotals
    state: State = State.STARTING
    rate: PrefillRate = field(default_factory=PrefillRate)
    capacity_tokens: int = _CAPACITY_TOKENS_UNKNOWN
    inflight_max: int | None = None
    lease_until_s: float | None = None
    ready_s: float | None = None
    holdings: Holdings | None = None
    observed: Observation | None = None
    report: Observation | None = None
    foreign_inflight: int = 0
    foreign_backlog_s: float = 0.0
    foreign_backlog_us: int = 0
    models: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()
    profile: str | None = None
    reports_cached: bool = False
    n_caches: int = 1
    counters: Counters = field(default_factory=Counters)
    replica_id: str = field(init=False)
    prefill_s: Callable[[int, int], float] = field(init=False)

    def __post_init__(self) -> None:
        self.replica_id = self.spec.replica_id
        self.prefill_s = self.rate.prefill_s

    @property
    def inflight(self) -> int:
        """Requests of ours, and what it reported beyond them."""
        return self.load.inflight + self.foreign_inflight

    @property
    def inflight_tokens(self) -> int:
        """Prompt and expected output tokens of our requests."""
        return self.load.inflight_tokens

    @property
    def decoding(self) -> int:
        """Requests of ours past their first event."""
        return self.load.decoding

    @property
    def prefill_tokens(self) -> int:
        """Tokens to be computed of our requests that have not begun to answer."""
        return self.load.prefill_tokens

    @property
    def backlog_s(self) -> float:
        """Seconds of prefill ahead of a request that is sent now."""
        return self.load.backlog_us / 1e6 + self.foreign_backlog_s

    @property
    def backlog_us(self) -> int:
        """The same in whole microseconds."""
        return self.load.backlog_us + self.foreign_backlog_us

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
    def is_full(self) -> bool:
        """At its limit of requests in flight."""
        return self.inflight_max is not None and self.load.inflight >= self.inflight_max


class Fleet:
    """All replicas the router knows, by id: ``get`` answers that of an id, None if it is not known."""

    def __init__(self, ledger: Ledger, pins: Pins, *, inflight_max: int | None = None) -> None:
        self._ledger = ledger
        self._pins = pins
        self._inflight_max = inflight_max
        self._replicas: dict[str, Replica] = {}
        self.get: Callable[[str], Replica | None] = self._replicas.get
        self._eligible: Eligible | None = None
        self._everyone: View | None = None
        self._plain: View | None = None  # the same, where every request sees it
        self._by_model: ByModel | None = None
        self._offers = Offers()
        self.n_changes = 0
        self._rings = Rings()
        self._lease_due_s = inf
        self._reported_s_min = -inf  # no load report is older
        self._has_limits = inflight_max is not None

    def __len__(self) -> int:
        return len(self._replicas)

    def replicas(self) -> list[Replica]:
        """All of them, in order of id."""
        return [self._replicas[key] for key in sorted(self._replicas)]

    def join(self, spec: ReplicaSpec, now_s: float) -> Replica:
        """Add a replica, or renew what is known of one that registers again."""
        replica = self._replicas.get(spec.replica_id)
        if replica is None:
            replica = Replica(
                spec, self._ledger.expect(spec.replica_id), self._pins.expect(spec.replica_id)
            )
            self._replicas[spec.replica_id] = replica
            self._rings = Rings(sorted(self._replicas))
            self._offers.change(None, ())
        else:
            has_moved = (spec.host, spec.port) != (replica.spec.host, replica.spec.port)
            if has_moved or replica.state is State.DRAINING:
                replica.state = State.STARTING
            if has_moved:
                self.describe(replica)
                replica.observed = replica.report = None
                self.set_foreign(replica, 0, 0.0)
            replica.spec = spec
        replica.capacity_tokens = spec.capacity_tokens or replica.capacity_tokens
        replica.profile = spec.profile or replica.profile
        replica.inflight_max = spec.inflight_max or self._inflight_max
        self.renew(replica, now_s)
        self._has_limits = self._has_limits or replica.inflight_max is not None
        self._changed()
        return replica

    def leave(self, replica_id: str) -> Replica | None:
        """Forget a replica."""
        replica = self._replicas.pop(replica_id, None)
        if replica is not None:
            self._offers.change(replica.serves, None)
        self._rings = Rings(sorted(self._replicas))
        self._ledger.forget(replica_id)
        self._pins.forget(replica_id)
        self._changed()
        return replica

    def follow(self, replica: Replica, event: Event) -> State:
        """Let an event change a replica's state; answer the state before it."""
        before = replica.state
        after = follow(before, event)
        if after is not before:
            replica.state = after
            self._changed()
        return before

    def renew(self, replica: Replica, now_s: float) -> None:
        """A replica's lease starts anew, if it has one."""
        lease_s = replica.spec.lease_s
        replica.lease_until_s = None if lease_s is None else now_s + lease_s
        if replica.lease_until_s is not None:
            self._lease_due_s = min(self._lease_due_s, replica.lease_until_s)

    def leases_ended(self, now_s: float) -> list[str]:
        """The replicas whose lease ran out, by id; looks at none before the first may have."""
        if now_s <= self._lease_due_s:
            return []
        leases = [
            (r.replica_id, r.lease_until_s) for r in self.replicas() if r.lease_until_s is not None
        ]
        ended = [replica_id for replica_id, until_s in leases if until_s < now_s]
        self._lease_due_s = min([until_s for _, until_s in leases if until_s >= now_s], default=inf)
        return ended

    def forget_reports(self, now_s: float, *, kept_s: float) -> None:
        """Load reports older than ``kept_s`` say nothing any more; looks at none before one may be."""
        before_s = now_s - kept_s
        if self._reported_s_min >= before_s:
            return
        oldest_s = now_s  # who has told nothing yet will do so from now on
        for replica in self._replicas.values():
            report = replica.report
            if report is None:
                continue
            if report.seen_s < before_s:
                replica.report = None
                self.set_foreign(replica, 0, 0.0)
            elif report.seen_s < oldest_s:
                oldest_s = report.seen_s
        self._reported_s_min = oldest_s

    def set_foreign(self, replica: Replica, inflight: int, backlog_s: float) -> None:
        """What a replica carries beyond our own requests."""
        if inflight != replica.foreign_inflight or backlog_s != replica.foreign_backlog_s:
            replica.foreign_inflight, replica.foreign_backlog_s = inflight, backlog_s
            replica.foreign_backlog_us = round(backlog_s * 1e6)
            self._ledger.changed[replica.replica_id] = None

    def describe(
        self, replica: Replica, models: tuple[str, ...] = (), adapters: tuple[str, ...] = ()
    ) -> None:
        """A replica said what it serves; nothing means that it may serve anything."""
        replica.models, before = models, replica.serves
        serves = (*models, *adapters)
        if serves != before:
            replica.serves = serves
            self._offers.change(before, serves)
            self._changed()

    def view(
        self, tried: Collection[str] = (), *, home_id: str | None = None, model: str = ""
    ) -> View:
        """Who may take a request for ``model`` now ("" for any); it is empty if nobody may.

        A suspect home takes the requests of its own sessions. Where all replicas serve the same,
        the model is not looked at.
        """
        if self._plain is not None and not tried:
            return self._plain
        is_mixed = self._offers.is_mixed
        ready = self._ready(model)
        home = None if home_id is None else self._replicas.get(home_id)
        guest = None
        if home is not None and home.state is _SUSPECT and home_id not in ready.by_id:
            guest = home if not is_mixed or may_serve(home, model) else None
        if tried or self._has_limits or is_mixed or guest is not None:
            return View(ready, tried=tried, has_limits=self._has_limits, guest=guest)
        if self._everyone is None:
            self._everyone = View(ready)
            if all(replica.state is not _SUSPECT for replica in self._replicas.values()):
                self._plain = self._everyone
        return self._everyone

    def eligible(self, model: str = "") -> Sequence[Candidate]:
        """Who might take a request for this model, were it not for limits."""
        return self._ready(model).replicas

    def _ready(self, model: str = "") -> Eligible:
        if self._offers.is_mixed:
            if self._by_model is None:
                self._by_model = ByModel(
                    self.replicas(),
                    self._rings,
                    loads_changed=self._ledger.changed,
                    homes_changed=self._pins.changed,
                )
            return self._by_model.of(model)
        if self._eligible is None:
            self._eligible = Eligible(
                eligible(self.replicas()),
                self._rings,
                loads_changed=self._ledger.changed,
                homes_changed=self._pins.changed,
            )
        return self._eligible

    def _changed(self) -> None:
        self.n_changes += 1
        self._eligible = self._everyone = self._plain = self._by_model = None

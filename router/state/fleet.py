"""The live fleet view: every replica with its beliefs, and who may take a request.

Nothing is copied for a decision: a policy reads the replicas themselves, and the sums it needs are
kept as requests and pins come and go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from router.state.health import Event, State, follow
from router.state.rates import PrefillRate

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from router.state.ledger import Ledger, Load
    from router.state.pins import HomeTotals, Pins


_HOST = re.compile(r"[A-Za-z0-9._:%-]{1,253}")


def parse_url(url: str) -> tuple[str, int] | None:
    """Host and port of ``http://HOST:PORT``; None if the URL has another form."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme != "http" or not host or not port or parts.path.strip("/"):
        return None
    if not _HOST.fullmatch(host):
        return None
    return None if parts.query or parts.fragment or parts.username else (host, port)


@dataclass(slots=True, frozen=True)
class ReplicaSpec:
    """What is known of a replica when it joins.

    ``capacity_tokens`` is device and host tier together, None if not known yet. ``lease_s`` None
    means it stays until it is removed. ``source`` says who named it: static or registered.
    """

    replica_id: str
    host: str
    port: int
    source: str = "static"
    capacity_tokens: int | None = None
    profile: str | None = None
    inflight_max: int | None = None
    lease_s: float | None = None

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


@dataclass(slots=True, frozen=True)
class Description:
    """What a replica says it is: KV tokens it can hold, the emulated hardware, the models it serves.

    ``reports_cached``: its answers tell how much of a prompt was cached, so that no word means none
    (SGLang leaves a count of zero out of ``/v1/messages``).
    """

    capacity_tokens: int | None = None
    profile: str | None = None
    models: tuple[str, ...] = ()
    reports_cached: bool = False


@dataclass(slots=True, frozen=True)
class Observation:
    """What a replica's load report said, and when we saw it.

    ``ours`` and ``ours_backlog_s`` are our own share at that time, from the ledger: the report
    contains our requests, so only what exceeds them is foreign load.
    """

    running: int
    waiting: int
    waiting_uncached_tokens: int
    seen_s: float
    ours: int = 0
    ours_backlog_s: float = 0.0


@dataclass(slots=True)
class Counters:
    """Totals since the replica joined."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    failures: int = 0


_CAPACITY_TOKENS_UNKNOWN = 500_000
"""Assumed until the replica says more: about what TP4 on a B200 leaves at a memory fraction of 0.9."""


@dataclass(slots=True)
class Replica:
    """One replica as the router believes it to be; a policy reads it as a ``ReplicaView``."""

    spec: ReplicaSpec
    load: Load
    home: HomeTotals
    state: State = State.STARTING
    rate: PrefillRate = field(default_factory=PrefillRate)
    capacity_tokens: int = _CAPACITY_TOKENS_UNKNOWN
    inflight_max: int | None = None
    lease_until_s: float | None = None
    ready_s: float | None = None
    observed: Observation | None = None
    foreign_inflight: int = 0
    foreign_backlog_s: float = 0.0
    models: tuple[str, ...] = ()
    profile: str | None = None
    reports_cached: bool = False
    counters: Counters = field(default_factory=Counters)

    @property
    def replica_id(self) -> str:
        """Stable name."""
        return self.spec.replica_id

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
    def backlog_s(self) -> float:
        """Seconds of prefill ahead of a request that is sent now."""
        return self.load.backlog_us / 1e6 + self.foreign_backlog_s

    @property
    def live_sessions(self) -> int:
        """Sessions at home here, seen lately."""
        return self.home.live_sessions

    @property
    def live_tokens(self) -> int:
        """Their tokens."""
        return self.home.live_tokens

    def prefill_s(self, new_tokens: int, cached_tokens: int) -> float:
        """Seconds to prefill ``new_tokens`` behind ``cached_tokens``."""
        return self.rate.prefill_s(new_tokens, cached_tokens)

    @property
    def is_full(self) -> bool:
        """At its limit of requests in flight."""
        return self.inflight_max is not None and self.load.inflight >= self.inflight_max


class View:
    """The candidates of one decision."""

    __slots__ = ("_by_id", "candidates")

    def __init__(self, candidates: Sequence[Replica]) -> None:
        self.candidates = candidates
        self._by_id: dict[str, Replica] | None = None

    def candidate(self, replica_id: str) -> Replica | None:
        """The candidate of this id, None if it cannot take the request now."""
        if self._by_id is None:
            self._by_id = {replica.replica_id: replica for replica in self.candidates}
        return self._by_id.get(replica_id)


class Fleet:
    """All replicas the router knows, by id."""

    def __init__(self, ledger: Ledger, pins: Pins, *, inflight_max: int | None = None) -> None:
        self._ledger = ledger
        self._pins = pins
        self._inflight_max = inflight_max
        self._replicas: dict[str, Replica] = {}
        self._view: View | None = None
        self._has_limits = inflight_max is not None

    def __len__(self) -> int:
        return len(self._replicas)

    def replicas(self) -> list[Replica]:
        """All of them, in order of id."""
        return [self._replicas[key] for key in sorted(self._replicas)]

    def get(self, replica_id: str) -> Replica | None:
        """The replica of this id."""
        return self._replicas.get(replica_id)

    def join(self, spec: ReplicaSpec, now_s: float) -> Replica:
        """Add a replica, or renew what is known of one that registers again."""
        replica = self._replicas.get(spec.replica_id)
        if replica is None:
            replica = Replica(
                spec, self._ledger.expect(spec.replica_id), self._pins.expect(spec.replica_id)
            )
            self._replicas[spec.replica_id] = replica
        else:
            has_moved = (spec.host, spec.port) != (replica.spec.host, replica.spec.port)
            if has_moved or replica.state is State.DRAINING:
                replica.state = State.STARTING
            if has_moved:
                replica.models, replica.observed = (), None
            replica.spec = spec
        replica.capacity_tokens = spec.capacity_tokens or replica.capacity_tokens
        replica.profile = spec.profile or replica.profile
        replica.inflight_max = spec.inflight_max or self._inflight_max
        replica.lease_until_s = None if spec.lease_s is None else now_s + spec.lease_s
        self._has_limits = self._has_limits or replica.inflight_max is not None
        self._changed()
        return replica

    def leave(self, replica_id: str) -> Replica | None:
        """Forget a replica."""
        replica = self._replicas.pop(replica_id, None)
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

    def view(self, tried: Collection[str] = (), *, home_id: str | None = None) -> View:
        """Who may take a request now; its ``candidates`` are empty if nobody may.

        A suspect home takes the requests of its own sessions.
        """
        everyone = self._everyone()
        home = None if home_id is None else self._replicas.get(home_id)
        if home is not None and home.state is State.SUSPECT and home not in everyone.candidates:
            everyone = View(sorted([*everyone.candidates, home], key=lambda r: r.replica_id))
        if not tried and not self._has_limits:
            return everyone
        return View([r for r in everyone.candidates if not r.is_full and r.replica_id not in tried])

    def eligible(self) -> Sequence[Replica]:
        """Who might take a request, were it not for limits."""
        return self._everyone().candidates

    def _everyone(self) -> View:
        if self._view is None:
            self._view = View(self._find_eligible())
        return self._view

    def _find_eligible(self) -> list[Replica]:
        """The ready ones; if there are none, the suspect ones."""
        everyone = self.replicas()
        ready = [r for r in everyone if r.state is State.READY]
        return ready or [r for r in everyone if r.state is State.SUSPECT]

    def _changed(self) -> None:
        self._view = None

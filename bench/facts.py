"""What a decision costs: facts, chain, choice and book-keeping of one large request.

Drives the dialects and the core without any I/O. Sessions grow: all messages but the newest two
are known to the memo (three in the messages dialect, where the cache mark moves on). A core that is
recorded frames its records, as the loop's thread does; packing them is another thread's.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import random
import time
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from bench.conversations import Template, chat_body, conversation, messages_body, responses_body
from bench.load import percentile
from bench.machine import Machine, machine
from router.core import RouterCore
from router.dialect import DialectOptions, dialects
from router.dialect.base import Usage
from router.policy import registry
from router.recording.codec import framed
from router.recording.recorded_core import RecordedCore
from router.recording.seal import Seal
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event
from router.state.history import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from router.dialect.base import Dialect, Headers
    from router.recording.records import Record
    from router.ticket import Ticket

BUDGET_US: Final = 500.0
"""Facts, chain and decision of a 450 KB body."""

PHASES: Final = ("read", "arrive", "outgoing", "began", "finish")
_N_DECISION: Final = 2
"""Of the phases, how many make the decision."""

_PATHS: Final = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
}
_WRITERS: Final = {"chat": chat_body, "messages": messages_body, "responses": responses_body}
_HEADERS: Final = {
    "chat": b"x-session-id",
    "messages": b"x-claude-code-session-id",
    "responses": b"session-id",
}
_FLEETS: Final = (4, 64)
_N_TALKS: Final = 4
_N_BASE: Final = 45
_N_TURNS: Final = 10
_REPLY_BYTES: Final = 7_500
_SESSIONS_A_REPLICA: Final = 3
_INFLIGHT_A_REPLICA: Final = 2
_PREFILLING_EVERY: Final = 8
_BYTES_A_TOKEN: Final = 4
_WARM_SHARE: Final = 0.2


class FactsRow(msgspec.Struct, frozen=True):
    """One dialect before one fleet; microseconds of process CPU time.

    ``decision`` is what the budget is for: reading the facts, and choosing.
    """

    dialect: str
    replicas: int
    phases_us: dict[str, float]
    decision_p50_us: float
    decision_p99_us: float
    total_p50_us: float
    total_p99_us: float


class FactsRun(msgspec.Struct, tag="facts", tag_field="kind"):
    """All rows; ``phases`` are the columns in the order in which a request goes through them."""

    machine: Machine
    iterations: int
    body_bytes: int
    budget_us: float
    n_messages: int
    phases: list[str]
    rows: list[FactsRow]
    is_recorded: bool = False


class Frames:
    """A journal that frames records and drops them."""

    is_open = True

    def write(self, record: Record) -> None:
        """Frame one record."""
        framed(record)

    def stop(self, reason: str) -> None:
        """Nothing here is too large to be recorded."""
        raise AssertionError(reason)


def _core(*, is_recorded: bool) -> RouterCore:
    policy, dice = registry.make("home"), random.Random(1)
    if is_recorded:
        return RecordedCore(policy, dice, seal=Seal(b"bench"), journal=Frames())
    return RouterCore(policy, dice)


class Drill:
    """One dialect and one core with a busy fleet, fed with growing sessions."""

    def __init__(self, name: str, n_replicas: int, *, is_recorded: bool = False) -> None:
        self._dialect: Dialect = dialects(DialectOptions())[_PATHS[name]]
        self._core = _core(is_recorded=is_recorded)
        self._now_s = 1_000.0
        for number in range(n_replicas):
            replica_id = f"10.0.0.{number}:30000"
            spec = ReplicaSpec(replica_id, f"10.0.0.{number}", 30_000, capacity_tokens=7_250_000)
            self._core.members.join(spec, self._now_s)
            self._core.members.heard(replica_id, Event.PROBE_OK, self._now_s)
        write = _WRITERS[name]
        talks = [
            conversation(seed, n_base=_N_BASE, n_turns=_N_TURNS, reply_bytes=_REPLY_BYTES)
            for seed in range(_N_TALKS)
        ]
        self._talks = [
            [Template.of(write(talk, _N_BASE + turn + 1)) for turn in range(_N_TURNS)]
            for talk in talks
        ]
        self._header = _HEADERS[name]
        self._n_sessions = _SESSIONS_A_REPLICA * n_replicas
        self._load(_INFLIGHT_A_REPLICA * n_replicas)

    @property
    def body_bytes(self) -> int:
        """The mean body."""
        return round(sum(b.size_bytes for t in self._talks for b in t) / (_N_TALKS * _N_TURNS))

    def requests(self) -> Iterator[tuple[bytes, Headers]]:
        """Endless requests: a session plays its turns in order, then the next one does.

        Each session passes with its base long known, as in the middle of its life.
        """
        number = 0
        while True:
            for session in range(self._n_sessions):
                number += 1
                for turn in range(_N_TURNS):
                    yield self._request(session, turn, number)

    def _request(self, session: int, turn: int, number: int) -> tuple[bytes, Headers]:
        """Sessions of one talk differ from their opening on: they share only tools and system."""
        body = self._talks[session % _N_TALKS][turn].filled(b"%016d" % session, number)
        headers = [
            (b"host", b"127.0.0.1"),
            (b"user-agent", b"agent/1.0"),
            (b"accept", b"*/*"),
            (b"content-type", b"application/json"),
            (b"authorization", b"Bearer sk-bench"),
            (self._header, b"ses-%032d" % session),
            (b"content-length", b"%d" % len(body)),
        ]
        return body, headers

    def _load(self, n_inflight: int) -> None:
        """Requests that stay in flight, most of them decoding, so that there is load to weigh."""
        for session in range(n_inflight):
            body, headers = self._request(session % self._n_sessions, 0, 0)
            ticket = self._core.arrive(self._dialect.read(body, headers), self._now_s)
            if session % _PREFILLING_EVERY:
                self._core.began(ticket, self._now_s)

    def once(self, body: bytes, headers: Headers) -> tuple[int, ...]:
        """One request from its body to its end; nanoseconds of CPU time for each phase."""
        clock = time.process_time_ns
        self._now_s += 0.05
        marks = [clock()]
        facts = self._dialect.read(body, headers)
        marks.append(clock())
        ticket: Ticket = self._core.arrive(facts, self._now_s)
        marks.append(clock())
        self._dialect.outgoing(body, facts)
        marks.append(clock())
        self._core.began(ticket, self._now_s)
        marks.append(clock())
        tokens = facts.prompt_bytes // _BYTES_A_TOKEN
        usage = Usage(prompt_tokens=tokens, output_tokens=300, cached_tokens=tokens * 24 // 25)
        self._core.finish(ticket, Outcome.DONE, self._now_s, usage=usage)
        marks.append(clock())
        return tuple(after - before for before, after in pairwise(marks))


def _row(name: str, n_replicas: int, iterations: int, *, is_recorded: bool) -> tuple[FactsRow, int]:
    drill = Drill(name, n_replicas, is_recorded=is_recorded)
    source = drill.requests()
    for _ in range(max(_warm_requests(n_replicas), int(iterations * _WARM_SHARE))):
        drill.once(*next(source))
    gc.collect()
    gc.freeze()  # as the router does when it begins to listen
    try:
        times = [drill.once(*next(source)) for _ in range(iterations)]
    finally:
        gc.unfreeze()
    totals = sorted(sum(row) / 1e3 for row in times)
    phases = {phase: median(row[at] / 1e3 for row in times) for at, phase in enumerate(PHASES)}
    decisions = sorted(sum(row[:_N_DECISION]) / 1e3 for row in times)
    row = FactsRow(
        dialect=name,
        replicas=n_replicas,
        phases_us=phases,
        decision_p50_us=median(decisions),
        decision_p99_us=percentile(decisions, 0.99),
        total_p50_us=median(totals),
        total_p99_us=percentile(totals, 0.99),
    )
    return row, drill.body_bytes


def _warm_requests(n_replicas: int) -> int:
    """Requests until every session has been seen for a whole pass."""
    return _SESSIONS_A_REPLICA * n_replicas * _N_TURNS


def measure(iterations: int, *, is_recorded: bool = False) -> FactsRun:
    """Measure both dialects before each fleet, with a core that is recorded or a plain one."""
    rows, sizes = [], []
    for name in _PATHS:
        for n_replicas in _FLEETS:
            row, size = _row(name, n_replicas, iterations, is_recorded=is_recorded)
            rows.append(row)
            sizes.append(size)
    return FactsRun(
        machine=machine(peers={}),
        iterations=iterations,
        body_bytes=round(sum(sizes) / len(sizes)),
        budget_us=BUDGET_US,
        n_messages=2 * (_N_BASE + _N_TURNS // 2) + 2,
        phases=list(PHASES),
        rows=rows,
        is_recorded=is_recorded,
    )


def profile(iterations: int) -> None:
    """Print where the time of both dialects goes, by function, before the larger fleet."""
    n_replicas = _FLEETS[-1]
    for name in _PATHS:
        drill = Drill(name, n_replicas)
        source = drill.requests()
        for _ in range(_warm_requests(n_replicas)):
            drill.once(*next(source))
        inputs = [next(source) for _ in range(iterations)]
        profiler = cProfile.Profile()
        profiler.enable()
        for body, headers in inputs:
            drill.once(body, headers)
        profiler.disable()
        print(f"{name}: {iterations} requests")
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)

"""A core driven at random, by a seed: sessions that grow and branch, a fleet that comes and goes.

``Drill(core, seed).run(steps)`` tells a core what a router may tell it, in any order it may. What is
believed in the end is read by ``beliefs``.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from router.core import CoreParameters
from router.dialect.base import PromptFacts, SessionSource, Usage, Work
from router.errors import (
    ConnectFailed,
    FirstEventTimeout,
    Refused,
    StreamStalled,
    UpstreamError,
    UpstreamProtocol,
    UpstreamStatus,
)
from router.state.cache.feeds import Feeding, Said
from router.state.cache.pages import Change, Kind, Medium
from router.state.fleet.replica import Description, Observation, PeerLoad, ReplicaSpec
from router.state.health.table import Event
from router.state.history import Outcome
from router.state.rates.prefill import PrefillRate
from router.state.shared.peers import ToldPin

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.core import RouterCore
    from router.ticket import Ticket

PARAMETERS = (
    CoreParameters(),
    CoreParameters(inflight_max=3, away_max=2, live_s=60.0, pin_ttl_s=400.0, pins_max=12),
)
_ERRORS: tuple[Callable[[], UpstreamError], ...] = (
    lambda: ConnectFailed("connect-failed", "x"),
    lambda: ConnectFailed("connect-timeout", "x"),
    lambda: FirstEventTimeout("first-event-timeout", "x"),
    lambda: StreamStalled("stream-stalled", "x"),
    lambda: UpstreamProtocol("bad-upstream-response", "x"),
    lambda: UpstreamStatus("upstream-status", "x", http_status=503),
    lambda: UpstreamStatus("upstream-status", "x", http_status=500),
)
_N_HEAD = 3
_N_REPLICAS = 6
_HEARD = {
    Event.PROBE_OK: 80,
    Event.PROBE_NOT_READY: 1,
    Event.PROBE_FAILED: 3,
    Event.CONNECT_FAILED: 1,
    Event.REQUEST_FAILED: 2,
    Event.REQUEST_OK: 6,
    Event.HEALTH_OK: 4,
    Event.HEALTH_FAILED: 1,
    Event.ERRORS: 1,
    Event.FULL: 2,
    Event.ROOM: 2,
    Event.TRY: 1,
    Event.STALL: 1,
    Event.MOVE: 2,
}


@dataclass
class _Session:
    key: str
    source: SessionSource
    model: str
    dialect: str
    parent_key: str | None
    segments: list[int]
    lengths: list[int]


@dataclass
class Drill:
    """Random steps for one core; equal seeds make equal steps."""

    core: RouterCore
    seed: int
    now_s: float = 1_000.0
    n_refused: int = 0
    n_placed: int = 0
    n_moved: int = 0
    arrived: list[PromptFacts] = field(default_factory=list)
    _sessions: list[_Session] = field(default_factory=list)
    _open: list[Ticket] = field(default_factory=list)
    _over: list[Ticket] = field(default_factory=list)
    _prompts: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self._head = [self.dice.getrandbits(64) for _ in range(_N_HEAD)]
        for n in range(4):
            self._join(n)
            self.core.members.heard(f"r{n}", Event.PROBE_OK, self.now_s)

    def run(self, steps: int) -> None:
        """Take this many steps."""
        acts: list[tuple[int, Callable[[], None]]] = [
            (30, self._arrive),
            (22, self._begin),
            (20, self._finish),
            (5, self._fail),
            (3, self._repeat),
            (10, self._probe),
            (5, self._observe),
            (2, self._describe),
            (2, self._change_members),
            (1, self._drain),
            (3, self._operate),
            (6, self._tick),
            (2, self._feed),
            (8, self._page),
            (12, self._tie),
            (4, self._peer_load),
            (8, self._peer_pin),
        ]
        weights = [weight for weight, _ in acts]
        for _ in range(steps):
            self.now_s += self.dice.choice((0.0, 0.01, 0.3, 2.0, 11.0, 40.0))
            self.dice.choices([act for _, act in acts], weights)[0]()

    # Requests

    def _new_session(self) -> _Session:
        dice = self.dice
        n = len(self._sessions)
        is_named = dice.random() < 0.7
        source = dice.choice((SessionSource.HEADER, SessionSource.BODY))
        session = _Session(
            key=f"session-{n}",
            source=source if is_named else SessionSource.CHAIN,
            model=dice.choice(("kimi-k2.6", "kimi-k2.6:tuned", "qwen3", "")),
            dialect=dice.choice(("openai-chat", "anthropic-messages")),
            parent_key=f"session-{n - 1}" if n and dice.random() < 0.2 else None,
            segments=list(self._head),
            lengths=[4096] * _N_HEAD,
        )
        self._grow(session)
        if not is_named:
            session.key = f"chain:{session.segments[_N_HEAD]:016x}"
        self._sessions.append(session)
        return session

    def _grow(self, session: _Session) -> None:
        for _ in range(self.dice.randint(1, 6)):
            session.segments.append(self.dice.getrandbits(64))
            session.lengths.append(
                self.dice.choice((120, 900, 900, 900, 4096, 4096, 4096, 4096, 160_000))
            )

    def _arrive(self) -> None:
        dice = self.dice
        is_new = not self._sessions or dice.random() < 0.2
        session = (
            self._new_session() if is_new else dice.choice(self._sessions[-dice.choice((2, 15)) :])
        )
        what = dice.random()
        if what < 0.6:
            self._grow(session)
        elif what < 0.7:  # another branch of it, or what a compaction leaves
            keep = dice.randint(_N_HEAD, len(session.segments))
            del session.segments[keep:], session.lengths[keep:]
            self._grow(session)
        segments, lengths = session.segments, session.lengths
        if what > 0.95:
            segments, lengths = [], []
        elif what > 0.9:
            segments, lengths = [dice.getrandbits(64)], [300]
        facts = PromptFacts(
            dialect=session.dialect,
            model=session.model,
            is_stream=dice.random() < 0.9,
            is_readable=bool(segments),
            output_tokens_max=dice.choice((None, 1, 4_000, 10**19)),
            session_key=session.key,
            session_source=session.source,
            parent_key=session.parent_key,
            chain=array("Q", segments),
            ends_bytes=array("I", accumulate(lengths)),
            head_segments=min(_N_HEAD, len(segments)),
            n_messages=len(segments),
            work=dice.choices(list(Work), [90, 3, 4, 3])[0],
            bound_to=self._name() if dice.random() < 0.05 else "",
        )
        self.arrived.append(facts)
        try:
            self._open.append(self.core.arrive(facts, self.now_s, may_wait=dice.random() < 0.5))
        except Refused:
            self.n_refused += 1
        else:
            self.n_placed += 1

    def _begin(self) -> None:
        waiting = [ticket for ticket in self._open if ticket.record.began_s is None]
        if waiting:
            self.core.began(self.dice.choice(waiting), self.now_s)

    def _finish(self) -> None:
        if not self._open:
            return
        dice = self.dice
        ticket = self._open.pop(dice.randrange(len(self._open)))
        self._over.append(ticket)
        outcome = dice.choice((Outcome.DONE, Outcome.DONE, Outcome.DONE, Outcome.CLIENT_GONE))
        error = None
        if dice.random() < 0.1:
            outcome, error = Outcome.FAILED, dice.choice(_ERRORS)()
        elif dice.random() < 0.05:
            outcome, error = Outcome.REJECTED, UpstreamStatus("upstream-status", "x")
        usage = None
        if dice.random() < 0.8:
            tokens = ticket.facts.prompt_bytes // dice.choice((2, 3, 4)) + 8
            cached = dice.choice((None, 0, tokens // 2, tokens - 1))
            usage = Usage(tokens, dice.randint(1, 2_000), cached)
        self.core.finish(ticket, outcome, self.now_s, usage=usage, error=error)

    def _fail(self) -> None:
        waiting = [ticket for ticket in self._open if ticket.record.began_s is None]
        if not waiting:
            return
        ticket, error = self.dice.choice(waiting), self.dice.choice(_ERRORS)()
        if self.dice.random() < 0.8:
            self.n_moved += self.core.retry(ticket, error, self.now_s)
            return
        self.core.blame(ticket, error, self.now_s)
        self._open.remove(ticket)
        self.core.finish(ticket, Outcome.FAILED, self.now_s, error=error)

    def _repeat(self) -> None:
        if self._over:
            self.core.finish(self.dice.choice(self._over), Outcome.DONE, self.now_s)
            self.core.began(self.dice.choice(self._over), self.now_s)

    # The fleet

    def _name(self) -> str:
        return f"r{self.dice.randrange(_N_REPLICAS)}"

    def _join(self, n: int) -> None:
        dice = self.dice
        spec = ReplicaSpec(
            f"r{n}",
            "127.0.0.1",
            dice.choice((31_000, 31_000, 31_001)) + n,
            capacity_tokens=dice.choice((None, 20_000, 60_000)),
            inflight_max=dice.choice((None, None, 2, 6)),
            lease_s=dice.choice((None, None, 90.0)),
        )
        self.core.members.join(spec, self.now_s)

    def _change_members(self) -> None:
        name = self._name()
        what = self.dice.random()
        if what < 0.7:
            self._join(int(name[1:]))
        elif what < 0.8:
            self.core.members.leave(name)
        else:
            self.core.members.renew(name, self.now_s)

    def _probe(self) -> None:
        event = self.dice.choices(list(_HEARD), list(_HEARD.values()))[0]
        self.core.members.heard(self._name(), event, self.now_s)

    def _drain(self) -> None:
        dice, members = self.dice, self.core.members
        if dice.random() < 0.5:
            members.undrain(self._name(), self.now_s)
            return
        deadline_s = dice.choice((None, None, 5.0))
        members.drain(self._name(), self.now_s, deadline_s=deadline_s, leaves=dice.random() < 0.2)

    def _operate(self) -> None:
        """What an operator may do, to sessions and replicas that are there or not."""
        dice, operating, name = self.dice, self.core.operating, self._name()
        recent = [pin.key for pin in self.core.pins.recent(6)]
        key = dice.choice([*recent, "nobody"])
        what = dice.randrange(6)
        if what == 0:
            operating.weigh(name, dice.choice((1.0, 0.01, 0.5, 3.0)))
        elif what == 1:
            operating.limit(name, dice.choice((None, 1, 4)))
        elif what == 2:
            operating.forget(name)
        elif what == 3:
            operating.fix(key, name, self.now_s, for_s=dice.choice((None, 30.0)))
        elif what == 4:
            operating.release(key)
        else:
            operating.move(key, name, self.now_s)

    def _describe(self) -> None:
        self.core.members.described(
            self._name(),
            Description(
                capacity_tokens=self.dice.choice((None, 30_000)),
                profile=self.dice.choice((None, "b200-tp4-fp8")),
                models=("kimi-k2.6", "qwen3")[: self.dice.choices((0, 1, 2), [1, 1, 18])[0]],
                reports_cached=self.dice.random() < 0.8,
                adapters=self.dice.choices(((), ("kimi-k2.6:tuned",)), [9, 1])[0],
                started=self.dice.choices(("", "1", "2"), [5, 4, 1])[0],
                chunk_tokens=self.dice.choice((0, 8_192)),
                rate=self.dice.choices((None, PrefillRate(0.1, 3e-5, 0.0, 0.0)), [9, 1])[0],
            ),
        )

    def _observe(self) -> None:
        dice = self.dice
        seen = Observation(
            running=dice.randrange(6),
            waiting=dice.randrange(6),
            waiting_uncached_tokens=dice.randrange(200_000),
            seen_s=self.now_s - dice.random(),
            ours=dice.randrange(5),
            ours_backlog_s=dice.random() * 5,
            used_ratio=dice.choice((0.0, 0.4, 0.9)),
            stamp=dice.choice(((), (1.0,), (2.0,), (1.0, 2.0))),
            prefill_tokens=int(self.now_s) * 4_000,
            prefill_busy_us=int(self.now_s * dice.choice((2e5, 9e5))),
            heard_s=self.now_s - 3.0 * dice.random(),
        )
        self.core.members.observed(self._name(), seen)

    # Pages

    def _feed(self) -> None:
        dice = self.dice
        said = dice.choice(
            (Said.BEGUN, Said.WHOLE, Said.WHOLE, Said.WHOLE, Said.PARTIAL, Said.LOST)
        )
        n_ranks = dice.choice((1, 1, 1, 2))
        name, page_tokens = self._name(), dice.choice((64, 64, 64, 16))
        for each in (Said.BEGUN, said) if dice.random() < 0.7 else (said,):
            told = Feeding(each, page_tokens, dice.randrange(n_ranks), n_ranks)
            self.core.members.fed(name, told, self.now_s)

    def _page(self) -> None:
        dice = self.dice
        prompt = dice.choice(self._prompts) if self._prompts else [1]
        at, end = sorted((dice.randrange(len(prompt)), len(prompt)))
        parent = prompt[at - 1] if at else None
        kind = dice.choices(list(Kind), [14, 6, 1])[0]
        pages = array("q", [] if kind is Kind.CLEARED else prompt[at:end])
        change = Change(kind, dice.choice(list(Medium)), parent, pages)
        self.core.members.paged(self._name(), dice.choice((0, 0, 1)), [change], self.now_s)

    def _tie(self) -> None:
        turns = (self._open + self._over)[-20:]
        if not turns:
            return
        dice = self.dice
        turn = dice.choice(turns)
        tokens = turn.record.reported_prompt_tokens or turn.facts.prompt_bytes // 4
        tokens += dice.random() < 0.1
        page_tokens = 64
        # The pages of a prompt's beginning are those of every prompt that begins alike.
        chain, ends = turn.facts.chain, turn.facts.ends_bytes
        pages = array("q")
        for n in range(tokens // page_tokens):
            at = min(bisect_left(ends, (n + 1) * page_tokens * 4), len(chain) - 1)
            pages.append((chain[at] ^ n * 0x9E3779B97F4A7C15) % (1 << 63) if chain else n + 1)
        if pages:
            self._prompts = [*self._prompts[-20:], list(pages)]
            change = Change(Kind.STORED, Medium.GPU, None, pages)
            self.core.members.paged(turn.replica_id, 0, [change], self.now_s)
        self.core.members.tied(turn, tokens, page_tokens, pages)

    # Other routers

    def _peer_load(self) -> None:
        dice = self.dice
        if dice.random() < 0.3:
            self.core.peers.part(is_apart=dice.random() < 0.5)
        loads = {
            self._name(): PeerLoad(*[dice.randrange(9) for _ in range(4)], dice.randrange(90_000))
            for _ in range(dice.randrange(4))
        }
        self.core.peers.loaded(
            dice.choice(("one", "two")), loads, self.now_s, ttl_s=dice.choice((2.0, 60.0))
        )

    def _peer_pin(self) -> None:
        """A session that is known here, or not; mostly as it is, a turn on."""
        dice = self.dice
        if not self._sessions:
            return
        session = dice.choice(self._sessions[-6:])
        n = dice.randint(1, len(session.segments))
        pin = self.core.pins.get(session.key)
        turns, version = (0, 0) if pin is None else (pin.n_requests, pin.version)
        prompt_bytes = sum(session.lengths[:n])
        self.core.peers.pinned(
            ToldPin(
                key=session.key,
                home_id=self._name(),
                version=max(0, version + dice.randint(-1, 1)),
                turn=max(0, turns + dice.randint(-1, 2)),
                tokens=prompt_bytes // 4 + 500,
                prompt_tokens=prompt_bytes // 4,
                prompt_bytes=prompt_bytes,
                output_tokens=dice.randrange(900),
                tail=session.segments[n - 1],
                tail_segments=dice.choices((n, 0), [9, 1])[0],
                served_id=dice.choice(("", self._name(), self._name())),
                age_s=dice.choice((0.0, 3.0, 900.0)),
                source=session.source.value,
                wins=dice.random() < 0.5,
                told_by=dice.choice(("one", "store")),
                fixed_id=self._name() if dice.random() < 0.1 else "",
                fixed_for_s=dice.choice((None, 30.0)),
            ),
            self.now_s,
        )

    def _tick(self) -> None:
        self.core.tick(self.now_s)


def beliefs(
    core: RouterCore,
    session: Callable[[str], str] = lambda key: key,
    model: Callable[[str], str] = lambda name: name,
) -> dict[str, Any]:
    """Everything a decision depends on, but for the chains; names as ``session``, ``model`` have them."""
    pins = [
        (
            session(pin.key), pin.home_id, pin.homed_s, pin.used_s, pin.tokens, pin.prompt_tokens,
            pin.output_tokens, pin.tail_segments, pin.away_id, pin.away_count, pin.is_live,
            None if pin.tie is None else (pin.tie.marks, len(pin.tie.pages)),
            pin.n_requests, None if pin.parent_key is None else session(pin.parent_key),
            pin.fixed_id, pin.fixed_until_s, pin.version, pin.turn, pin.claim_id,
        )
        for pin in core.pins.recent(1 << 30)
    ]  # fmt: skip
    replicas = [
        (
            r.spec, r.state, r.capacity_tokens, r.weight, r.inflight_max, r.lease_until_s, r.observed, r.report,
            r.foreign_inflight, r.foreign_backlog_s, r.peers, r.others_inflight, r.counters, r.load, r.home,
            tuple(model(name) for name in r.models), core.index.held_bytes(r.replica_id),
            core.beliefs.pages(r.replica_id), core.beliefs.accuracy(r.replica_id),
            core.beliefs.age_s(r.replica_id, core.history.totals.requests),
        )
        for r in core.fleet.replicas()
    ]  # fmt: skip
    return {
        "pins": pins,
        "replicas": replicas,
        "ratio": [
            ((model(k[0]) if k[0] else "", k[1]), sums) for k, sums in core.ratio._sums.items()
        ],
        "answers": [
            ((model(k[0]) if k[0] else "", k[1]), sums) for k, sums in core.answers._sums.items()
        ],
        "tails": [session(key) for key in core.tails._keys.values()],
        "totals": core.history.totals,
        "loads": core.ledger._loads,
        "sessions": {
            (session(k) if k else "", r): n for (k, r), n in core.ledger._sessions.items()
        },
        "serial": core.serial,
        "dice": core.dice.getstate(),
    }

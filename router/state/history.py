"""What was decided and what came of it: the last requests of each session, and the totals."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from router.rows import Row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.policy.view import Price

DECISIONS_A_SESSION: Final = 16
_TTFT_SAMPLES: Final = 1_000


class Outcome(StrEnum):
    """How a placed request ended."""

    DONE = "done"
    REJECTED = "rejected"
    """The replica found fault with the request itself (its 4xx), and the client was told so."""
    CLIENT_GONE = "client-gone"
    FAILED = "failed"
    HELD = "held"
    """Every replica was full, and it waits at the door: placed anew, it is another record."""


_FAILED: Final = Outcome.FAILED
_CLIENT_GONE: Final = Outcome.CLIENT_GONE


class RequestRecord(Row):
    """One request from its decision to its end; tokens are estimates unless ``reported_``.

    Times are seconds on the router's clock. ``ttft_s`` is None if no model event came.
    ``is_turn``: it generates, unlike a call. ``held_s`` is how long it waited at the door before this decision.
    """

    session_key: str
    session_source: str
    dialect: str
    model: str
    is_stream: bool
    reason: str
    arrived_s: float
    prompt_tokens: int
    replica_id: str = ""
    ranked: tuple[str, ...] = ()
    prices: Mapping[str, Price] = {}
    predicted_cached_tokens: int = 0
    n_tries: int = 1
    began_s: float | None = None
    ended_s: float | None = None
    reported_prompt_tokens: int | None = None
    reported_cached_tokens: int | None = None
    output_tokens: int | None = None
    outcome: Outcome | None = None
    error_code: str | None = None
    tenant: str = ""
    request_id: str = ""
    trace_id: str = ""
    is_turn: bool = True
    held_s: float = 0.0

    @property
    def ttft_s(self) -> float | None:
        """From the request's arrival at the door to its first model event."""
        return None if self.began_s is None else self.held_s + self.began_s - self.arrived_s

    @property
    def duration_s(self) -> float:
        """From the request's arrival at the door to its end."""
        return 0.0 if self.ended_s is None else self.held_s + self.ended_s - self.arrived_s


@dataclass(slots=True)
class Totals:
    """Sums over all requests since the start."""

    requests: int = 0
    errors: int = 0
    client_gone: int = 0
    retries: int = 0
    moves: int = 0
    splits: int = 0
    rehomes: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    predicted_cached_tokens: int = 0


@dataclass(slots=True)
class History:
    """The newest decisions of the most recent sessions; both bounded.

    Where nobody asks for sessions, ``sessions_max`` is 0, and a record is nobody's but its request's.
    """

    sessions_max: int = 5_000
    totals: Totals = field(default_factory=Totals)
    ttfts_s: deque[float] = field(default_factory=lambda: deque(maxlen=_TTFT_SAMPLES))
    _sessions: OrderedDict[str, deque[RequestRecord]] = field(default_factory=OrderedDict)

    def add(self, record: RequestRecord) -> None:
        """Remember a decision; its record is filled in as the request goes on."""
        if not self.sessions_max:
            return
        sessions, key = self._sessions, record.session_key
        records = sessions.get(key)
        if records is None:
            records = sessions[key] = deque(maxlen=DECISIONS_A_SESSION)
            if len(sessions) > self.sessions_max:
                sessions.popitem(last=False)
        else:
            sessions.move_to_end(key)
        records.append(record)

    def of(self, session_key: str) -> list[RequestRecord]:
        """A session's newest decisions, the newest last; empty if it is not known."""
        return list(self._sessions.get(session_key, ()))

    def ended(self, record: RequestRecord) -> None:
        """Count a request that is over."""
        totals = self.totals
        totals.requests += 1
        totals.retries += record.n_tries - 1
        if record.outcome is _FAILED:
            totals.errors += 1
        elif record.outcome is _CLIENT_GONE:
            totals.client_gone += 1
        if record.reported_prompt_tokens is not None:
            totals.prompt_tokens += record.reported_prompt_tokens
            totals.cached_tokens += record.reported_cached_tokens or 0
            totals.predicted_cached_tokens += record.predicted_cached_tokens
        ttft_s = record.ttft_s
        if ttft_s is not None:
            self.ttfts_s.append(ttft_s)

"""The ledger: requests dispatched and not finished, and what they load each replica with.

It is core state, never an observer's side effect: an entry is opened in the same step as the
decision and closed on every way out. Sums are kept in whole numbers, so that they return to
exactly zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from router.rows import Row

LONG_TOKENS: Final = 32_768
"""From so many tokens to be computed on a prompt is long: four of an engine's usual chunks, a second and more."""

_US: Final = 1e6


@dataclass(slots=True)
class Load:
    """What one replica carries of ours: counts, tokens, and prefill not yet answered.

    ``prefill_tokens`` are those to be computed of the requests that have not begun to answer, of which
    ``long_prefills`` have :data:`LONG_TOKENS` and more;
    ``given_tokens`` the most of them since the replica's last report, ``deepest_tokens`` the longest
    request since none of ours was there. ``has_taken_back``: one ended since the report before it had begun to
    answer, and may be computed still. ``heard_s`` is when an answer last brought something, as the edge's
    timer has seen; ``is_lost``: the replica stands still or is gone, and what has not begun should go elsewhere.
    """

    inflight: int = 0
    inflight_tokens: int = 0
    decoding: int = 0
    backlog_us: int = 0
    prefill_tokens: int = 0
    long_prefills: int = 0
    given_tokens: int = 0
    deepest_tokens: int = 0
    has_taken_back: bool = False
    heard_s: float = 0.0
    is_lost: bool = False

    @property
    def backlog_s(self) -> float:
        """Seconds of prefill that have not begun to answer."""
        return self.backlog_us / _US


class Entry(Row):
    """One request in flight; owned by the ledger, read by others. ``load`` is its replica's."""

    replica_id: str
    session_key: str
    tokens: int
    prefill_us: int
    prefill_tokens: int
    load: Load
    has_begun: bool = False
    is_open: bool = True

    @property
    def is_long(self) -> bool:
        """Much of its prompt is to be computed."""
        return self.prefill_tokens >= LONG_TOKENS


@dataclass(slots=True)
class Ledger:
    """All requests in flight, by replica and by session.

    ``changed`` names the replicas whose load changed; who reads them from there empties it.
    """

    changed: dict[str, None] = field(default_factory=dict)
    _loads: dict[str, Load] = field(default_factory=dict)
    _sessions: dict[tuple[str, str], int] = field(default_factory=dict)
    _leaving: set[str] = field(default_factory=set)

    def load(self, replica_id: str) -> Load:
        """The live load of a replica; stays valid and changes as requests come and go."""
        load = self._loads.get(replica_id)
        if load is None:
            load = self._loads[replica_id] = Load()
        return load

    def loads(self) -> list[tuple[str, Load]]:
        """All of them by replica, also those of replicas that have nothing of ours."""
        return list(self._loads.items())

    def expect(self, replica_id: str) -> Load:
        """The load of a replica that joins, which may still have requests from before it left."""
        self._leaving.discard(replica_id)
        return self.load(replica_id)

    def forget(self, replica_id: str) -> None:
        """Drop the row of a replica that left, once its running requests have ended."""
        load = self._loads.get(replica_id)
        if load is not None and load.inflight:
            self._leaving.add(replica_id)
        else:
            self._loads.pop(replica_id, None)

    def session_inflight(self, session_key: str, replica_id: str) -> int:
        """Requests of one session in flight at one replica."""
        return self._sessions.get((session_key, replica_id), 0)

    def open(
        self,
        replica_id: str,
        session_key: str,
        *,
        tokens: int,
        prefill_s: float,
        prefill_tokens: int = 0,
    ) -> Entry:
        """Enter a request that is dispatched now; ``tokens`` are prompt and expected output."""
        load = self._loads.get(replica_id) or self.load(replica_id)
        entry = Entry(replica_id, session_key, tokens, _whole_us(prefill_s), prefill_tokens, load)
        self._add(entry)
        return entry

    def began(self, entry: Entry) -> None:
        """The first event came: its prefill is no backlog any more. Repeating it changes nothing."""
        if not entry.is_open or entry.has_begun:
            return
        entry.has_begun = True
        load = entry.load
        load.backlog_us -= entry.prefill_us
        load.prefill_tokens -= entry.prefill_tokens
        load.long_prefills -= entry.is_long
        load.decoding += 1
        self.changed[entry.replica_id] = None

    def move(
        self, entry: Entry, replica_id: str, *, prefill_s: float, prefill_tokens: int = 0
    ) -> None:
        """The request failed before its first event and is dispatched to another replica."""
        assert entry.is_open, "a closed request cannot move"
        self._remove(entry)
        entry.replica_id = replica_id
        entry.load = self.load(replica_id)
        entry.prefill_us = _whole_us(prefill_s)
        entry.prefill_tokens = prefill_tokens
        entry.has_begun = False
        self._add(entry)

    def close(self, entry: Entry) -> None:
        """The request is over, in whatever way. Repeating it changes nothing."""
        if entry.is_open:
            self._remove(entry)
            entry.is_open = False

    def _add(self, entry: Entry) -> None:
        load = entry.load
        load.inflight += 1
        load.inflight_tokens += entry.tokens
        load.backlog_us += entry.prefill_us
        load.prefill_tokens = tokens = load.prefill_tokens + entry.prefill_tokens
        load.long_prefills += entry.is_long
        load.given_tokens = max(load.given_tokens, tokens)
        load.deepest_tokens = max(load.deepest_tokens, entry.tokens)
        self.changed[entry.replica_id] = None
        key = (entry.session_key, entry.replica_id)
        self._sessions[key] = self._sessions.get(key, 0) + 1

    def _remove(self, entry: Entry) -> None:
        load = entry.load
        load.inflight -= 1
        load.inflight_tokens -= entry.tokens
        if entry.has_begun:
            load.decoding -= 1
        else:
            load.backlog_us -= entry.prefill_us
            load.prefill_tokens -= entry.prefill_tokens
            load.long_prefills -= entry.is_long
            load.has_taken_back = True
        self.changed[entry.replica_id] = None
        if not load.inflight:
            if not load.has_taken_back:
                load.given_tokens = load.deepest_tokens = 0
            if entry.replica_id in self._leaving:
                self._leaving.discard(entry.replica_id)
                del self._loads[entry.replica_id]
        key = (entry.session_key, entry.replica_id)
        left = self._sessions[key] - 1
        if left:
            self._sessions[key] = left
        else:
            del self._sessions[key]


def _whole_us(duration_s: float) -> int:
    return round(duration_s * _US) if duration_s > 0.0 else 0

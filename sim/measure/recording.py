"""What is noted while a run goes on: a row of numbers a request, and exact time integrals.

Cheap on the path: arrays, no objects, a constant number of steps a change. :mod:`sim.measure.figures`
makes figures of it afterwards.
"""

from __future__ import annotations

from array import array
from math import nan
from typing import TYPE_CHECKING, Final

from sim.measure.result import RunEvent

if TYPE_CHECKING:
    from collections.abc import Callable

TOLD_REPLICAS: Final = 64
"""Replicas whose curves are told: the first ones of the fleet."""

BUCKETS_MAX: Final = 120
"""Buckets of time at most; a run that goes on has them merged in pairs."""

_ROWS: Final = 4_096
"""Rows by which the columns grow that are filled in later."""

OPEN: Final = 0
ANSWERED: Final = 1
GIVEN_UP: Final = 2


class Rows:
    """One row a request, in order of its first arrival; times are the client's, ``nan`` if not known.

    There are as many as ``due_s`` has; columns that are filled in later reach beyond them.
    """

    __slots__ = (
        "cached_tokens",
        "ceiling_tokens",
        "decode_s",
        "due_s",
        "host_tokens",
        "output_tokens",
        "predicted_tokens",
        "prompt_tokens",
        "state",
        "ttft_s",
    )

    def __init__(self) -> None:
        self.due_s = array("d")
        self.ttft_s = array("d")
        self.decode_s = array("d")
        # Elements of type "I" are set in half the time of "q", whose argument is parsed.
        self.prompt_tokens = array("I")
        self.output_tokens = array("I")
        self.ceiling_tokens = array("I")
        self.cached_tokens = array("q")
        self.host_tokens = array("I")
        self.predicted_tokens = array("I")
        self.state = array("b")

    def __len__(self) -> int:
        return len(self.due_s)

    def add(self, due_s: float, prompt_tokens: int, output_tokens: int, ceiling_tokens: int) -> int:
        """One more; answers its number."""
        row = len(self.due_s)
        self.due_s.append(due_s)
        self.prompt_tokens.append(prompt_tokens)
        self.output_tokens.append(output_tokens)
        self.ceiling_tokens.append(ceiling_tokens)
        if row == len(self.state):
            for times in (self.ttft_s, self.decode_s):
                times.extend(array("d", [nan]) * _ROWS)
            self.cached_tokens.extend(array("q", [-1]) * _ROWS)
            for counts in (self.host_tokens, self.predicted_tokens):
                counts.extend(array("I", [0]) * _ROWS)
            self.state.extend(array("b", [OPEN]) * _ROWS)
        return row


class Buckets:
    """Sums of each replica by bucket of time; ``width_s`` doubles when there are too many."""

    def __init__(self, width_s: float) -> None:
        self.width_s = width_s
        self.area: list[list[float]] = []
        self.served_s: list[list[float]] = []
        self.cached: list[list[int]] = []
        self.prompt: list[list[int]] = []
        self.used: list[list[float | None]] = []

    def __len__(self) -> int:
        return len(self.area)

    def merge(self) -> None:
        """Make one bucket of each two."""
        assert len(self) % 2 == 0, "pairs are merged"
        self.width_s *= 2
        for table in (self.area, self.served_s):
            table[:] = [_added(a, b) for a, b in zip(table[::2], table[1::2], strict=True)]
        for counts in (self.cached, self.prompt):
            counts[:] = [_counted(a, b) for a, b in zip(counts[::2], counts[1::2], strict=True)]
        self.used = self.used[1::2]


class _Tally:
    """One replica: its requests in flight, since when, and its sums in the bucket in progress."""

    __slots__ = ("area", "cached", "inflight", "is_serving", "prompt", "served_s", "since_s")

    def __init__(self, since_s: float) -> None:
        self.inflight = 0
        self.is_serving = False
        self.since_s = since_s
        self.start()

    def start(self) -> None:
        """A bucket begins."""
        self.area = self.served_s = 0.0
        self.cached = self.prompt = 0


class Recording:
    """What is known of a run so far. ``window`` figures count from :meth:`begin` to :meth:`close`.

    In-flight counts are of requests that a router has sent to a replica and that are not over there.
    Variance and mean are across the replicas in service, weighted by time.
    """

    def __init__(self, bucket_s: float, used_ratio: Callable[[int], float | None]) -> None:
        self.rows = Rows()
        self.buckets = Buckets(bucket_s)
        self.events: list[RunEvent] = []
        self.reasons: dict[str, int] = {}
        self.retries = self.repeats = self.moves = 0
        self.tokens = 0
        self.mean_area = self.variance_area = self.gpu_s = 0.0
        self.began_s = self.closed_s = 0.0
        self.is_measuring = False
        self.has_begun = False
        self.is_closed = False
        self.spread_s: list[float] = []
        self._used_ratio = used_ratio
        self._replicas: list[_Tally] = []
        self._bucket_end_s = bucket_s
        self._last_s = 0.0
        self._gpus = 0
        self._serving = self._total = self._squares = 0

    # Requests: :meth:`Rows.add` is called when one is sent for the first time

    def decided(self, row: int, reason: str, predicted_tokens: int) -> None:
        """A router placed it for the first time in this try."""
        self.rows.predicted_tokens[row] = predicted_tokens
        if self.is_measuring:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def retried(self) -> None:
        """A router sent a request to another replica."""
        self.retries += self.is_measuring

    def repeated(self) -> None:
        """A client sends a request again."""
        self.repeats += self.is_measuring

    def began(self, row: int, ttft_s: float, cached: int, host: int, replica: int) -> None:
        """Its first token came to the client, for the first time."""
        rows = self.rows
        rows.ttft_s[row] = ttft_s
        rows.cached_tokens[row] = cached
        rows.host_tokens[row] = host
        tally = self._replicas[replica]
        tally.cached += cached
        tally.prompt += rows.prompt_tokens[row]

    def answered(self, row: int, decode_s: float) -> None:
        """It was answered whole, ``decode_s`` after its first token."""
        rows = self.rows
        rows.decode_s[row] = decode_s
        rows.state[row] = ANSWERED
        if self.is_measuring:
            self.tokens += rows.prompt_tokens[row] + rows.output_tokens[row]

    def gave_up(self, row: int) -> None:
        """Its client does not try again."""
        self.rows.state[row] = GIVEN_UP

    def told(self, at_s: float, what: str, replica_id: str = "") -> None:
        """Something happened to the fleet; after the end of the run nobody wants to know."""
        if not self.is_closed:
            self.events.append(RunEvent(at_s, what, replica_id))

    # Replicas

    def joined(self, gpus: int, now_s: float) -> int:
        """One more replica, not in service yet; answers its number."""
        self._pass(now_s)
        self._gpus += gpus
        self._replicas.append(_Tally(now_s))
        return len(self._replicas) - 1

    def left(self, gpus: int, now_s: float) -> None:
        """A replica is no more."""
        self._pass(now_s)
        self._gpus -= gpus

    def serves(self, replica: int, now_s: float, *, is_serving: bool) -> None:
        """A replica comes into service, or goes out of it; in-flight figures are of those in service."""
        tally = self._replicas[replica]
        if tally.is_serving is is_serving:
            return
        self._pass(now_s)
        self._settle(tally, now_s)
        tally.is_serving = is_serving
        sign = 1 if is_serving else -1
        self._serving += sign
        self._total += sign * tally.inflight
        self._squares += sign * tally.inflight * tally.inflight

    def inflight(self, replica: int, change: int, now_s: float) -> None:
        """Requests in flight at a replica became more or fewer."""
        tally = self._replicas[replica]
        n = tally.inflight
        if not self.is_closed:
            if now_s > self._last_s:
                self._pass(now_s)
            if tally.is_serving:
                if now_s > tally.since_s:
                    self._settle(tally, now_s)
                self._total += change
                self._squares += change * (2 * n + change)
        tally.inflight = n + change

    def inflight_of(self, replica: int) -> int:
        """Requests in flight at a replica now."""
        return self._replicas[replica].inflight

    # The window

    def begin(self, now_s: float, moves: int) -> None:
        """Warm-up is over: what is measured counts from here on."""
        self._pass(now_s)
        for tally in self._replicas:
            self._settle(tally, now_s)
        self.is_measuring = self.has_begun = True
        self.began_s = now_s
        self.mean_area = self.variance_area = self.gpu_s = 0.0
        self.moves = -moves
        self.retries = self.repeats = 0

    def close(self, now_s: float, moves: int) -> None:
        """The window ends; rows already sent may still be filled in."""
        self._pass(now_s)
        for tally in self._replicas:
            self._settle(tally, now_s)
        bucket_start_s = len(self.buckets) * self.buckets.width_s
        if now_s > bucket_start_s:
            self._store()
        self.is_measuring = False
        self.is_closed = True
        self.closed_s = now_s
        self.moves = self.moves + moves if self.has_begun else 0

    def _pass(self, now_s: float) -> None:
        """Let time pass with everything as it is."""
        if self.is_closed:
            return
        if now_s >= self._bucket_end_s:
            self._roll(now_s)
        passed_s = now_s - self._last_s
        if passed_s > 0.0:
            self._last_s = now_s
            if self.is_measuring:
                self.gpu_s += self._gpus * passed_s
                if serving := self._serving:
                    mean = self._total / serving
                    self.mean_area += mean * passed_s
                    self.variance_area += (self._squares / serving - mean * mean) * passed_s

    def _roll(self, now_s: float) -> None:
        """Close the buckets that end by now."""
        while now_s >= self._bucket_end_s:
            end_s = self._bucket_end_s
            for tally in self._replicas:
                self._settle(tally, end_s)
            self._store()
            if len(self.buckets) == BUCKETS_MAX:
                self.buckets.merge()
            self._bucket_end_s = (len(self.buckets) + 1) * self.buckets.width_s

    def _settle(self, tally: _Tally, now_s: float) -> None:
        """Count a replica's time since its last change."""
        passed_s = now_s - tally.since_s
        if passed_s <= 0.0:
            return
        tally.since_s = now_s
        if tally.is_serving:
            n = tally.inflight
            tally.served_s += passed_s
            tally.area += n * passed_s
            if self.is_measuring:
                spread = self.spread_s
                while len(spread) <= n:
                    spread.append(0.0)
                spread[n] += passed_s

    def _store(self) -> None:
        """Close the bucket in progress."""
        buckets, tallies = self.buckets, self._replicas
        buckets.area.append([tally.area for tally in tallies])
        buckets.served_s.append([tally.served_s for tally in tallies])
        buckets.cached.append([tally.cached for tally in tallies])
        buckets.prompt.append([tally.prompt for tally in tallies])
        n_told = min(len(tallies), TOLD_REPLICAS)
        buckets.used.append([self._used_ratio(number) for number in range(n_told)])
        for tally in tallies:
            tally.start()


def _added(a: list[float], b: list[float]) -> list[float]:
    """The sums of two rows, the first of which may be shorter: replicas joined since."""
    return [x + y for x, y in zip(a, b, strict=False)] + b[len(a) :]


def _counted(a: list[int], b: list[int]) -> list[int]:
    """The same for counts."""
    return [x + y for x, y in zip(a, b, strict=False)] + b[len(a) :]

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
        self.prompt_tokens = array("q")
        self.output_tokens = array("q")
        self.ceiling_tokens = array("q")
        self.cached_tokens = array("q")
        self.host_tokens = array("q")
        self.predicted_tokens = array("q")
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
                counts.extend(array("q", [0]) * _ROWS)
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
        self._n: list[int] = []
        self._serves: list[bool] = []
        self._since_s: list[float] = []
        self._area: list[float] = []
        self._served_s: list[float] = []
        self._cached: list[int] = []
        self._prompt: list[int] = []
        self._bucket_end_s = bucket_s
        self._last_s = 0.0
        self._gpus = 0
        self._serving = self._total = self._squares = 0
        self._mean = self._variance = 0.0

    # Requests

    def sent(self, due_s: float, prompt_tokens: int, output_tokens: int, ceiling: int) -> int:
        """A request was sent for the first time; answers its row."""
        return self.rows.add(due_s, prompt_tokens, output_tokens, ceiling)

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
        self._cached[replica] += cached
        self._prompt[replica] += rows.prompt_tokens[row]

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
        for column in (self._area, self._served_s):
            column.append(0.0)
        for counts in (self._n, self._cached, self._prompt):
            counts.append(0)
        self._serves.append(False)
        self._since_s.append(now_s)
        return len(self._n) - 1

    def left(self, gpus: int, now_s: float) -> None:
        """A replica is no more."""
        self._pass(now_s)
        self._gpus -= gpus

    def serves(self, replica: int, now_s: float, *, is_serving: bool) -> None:
        """A replica comes into service, or goes out of it; in-flight figures are of those in service."""
        if self._serves[replica] is is_serving:
            return
        self._pass(now_s)
        self._settle(replica, now_s)
        self._serves[replica] = is_serving
        n = self._n[replica]
        sign = 1 if is_serving else -1
        self._serving += sign
        self._total += sign * n
        self._squares += sign * n * n
        serving = self._serving
        self._mean = mean = self._total / serving if serving else 0.0
        self._variance = self._squares / serving - mean * mean if serving else 0.0

    def inflight(self, replica: int, change: int, now_s: float) -> None:
        """Requests in flight at a replica became more or fewer."""
        n = self._n[replica]
        if self.is_closed:
            self._n[replica] = n + change
            return
        if now_s >= self._bucket_end_s:
            self._roll(now_s)
        passed_s = now_s - self._last_s
        if passed_s > 0.0:
            self._last_s = now_s
            self.mean_area += self._mean * passed_s
            self.variance_area += self._variance * passed_s
            self.gpu_s += self._gpus * passed_s
        if self._since_s[replica] < now_s:
            self._settle(replica, now_s)
        self._n[replica] = n + change
        serving = self._serving
        if self._serves[replica]:
            self._total += change
            self._squares += change * (2 * n + change)
            self._mean = mean = self._total / serving
            self._variance = self._squares / serving - mean * mean

    def inflight_of(self, replica: int) -> int:
        """Requests in flight at a replica now."""
        return self._n[replica]

    # The window

    def begin(self, now_s: float, moves: int) -> None:
        """Warm-up is over: what is measured counts from here on."""
        self._pass(now_s)
        for replica in range(len(self._n)):
            self._settle(replica, now_s)
        self.is_measuring = self.has_begun = True
        self.began_s = now_s
        self.mean_area = self.variance_area = self.gpu_s = 0.0
        self.moves = -moves
        self.retries = self.repeats = 0

    def close(self, now_s: float, moves: int) -> None:
        """The window ends; rows already sent may still be filled in."""
        self._pass(now_s)
        for replica in range(len(self._n)):
            self._settle(replica, now_s)
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
            self.mean_area += self._mean * passed_s
            self.variance_area += self._variance * passed_s
            self.gpu_s += self._gpus * passed_s

    def _roll(self, now_s: float) -> None:
        """Close the buckets that end by now."""
        while now_s >= self._bucket_end_s:
            end_s = self._bucket_end_s
            for replica in range(len(self._n)):
                self._settle(replica, end_s)
            self._store()
            if len(self.buckets) == BUCKETS_MAX:
                self.buckets.merge()
            self._bucket_end_s = (len(self.buckets) + 1) * self.buckets.width_s

    def _settle(self, replica: int, now_s: float) -> None:
        """Count a replica's time since its last change."""
        passed_s = now_s - self._since_s[replica]
        if passed_s <= 0.0:
            return
        self._since_s[replica] = now_s
        if not self._serves[replica]:
            return
        n = self._n[replica]
        self._served_s[replica] += passed_s
        self._area[replica] += n * passed_s
        if self.is_measuring:
            spread = self.spread_s
            while len(spread) <= n:
                spread.append(0.0)
            spread[n] += passed_s

    def _store(self) -> None:
        """Close the bucket in progress."""
        buckets = self.buckets
        n = len(self._n)
        buckets.area.append(self._area)
        buckets.served_s.append(self._served_s)
        buckets.cached.append(self._cached)
        buckets.prompt.append(self._prompt)
        buckets.used.append([self._used_ratio(i) for i in range(min(n, TOLD_REPLICAS))])
        self._area, self._served_s = [0.0] * n, [0.0] * n
        self._cached, self._prompt = [0] * n, [0] * n


def _added(a: list[float], b: list[float]) -> list[float]:
    """The sums of two rows, the first of which may be shorter: replicas joined since."""
    return [x + y for x, y in zip(a, b, strict=False)] + b[len(a) :]


def _counted(a: list[int], b: list[int]) -> list[int]:
    """The same for counts."""
    return [x + y for x, y in zip(a, b, strict=False)] + b[len(a) :]

"""The virtual clock: what happens when, in one fixed order: by (time, rank, serial).

At equal times the rank decides, then the order of scheduling. :class:`Rank` says which goes first.
"""

from __future__ import annotations

from enum import IntEnum
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    Handler = Callable[[Any], None]
    Entry = tuple[float, int, int, Handler | None, Any]

_STALE_MIN: Final = 256
"""Below that, entries that were replaced are not worth sweeping out."""

_SLICE_S: Final = 2.0
"""A power of two, so that slices begin and end at exact times."""


class Rank(IntEnum):
    """Order at equal times.

    What an engine finished is known before anything is decided at that moment; so is an answer to a
    poll that arrives then. Requests come next, and a poll sees them. A fault is last: it hits what is
    under way, and what comes at the same moment is under way.
    """

    ENGINE = 0
    DELIVERY = 1
    ARRIVAL = 2
    POLL = 3
    FAULT = 4
    SAMPLE = 5


class TimeWentBackError(Exception):
    """Something was scheduled before the present moment: a fault of the simulator, never of a scenario."""


class Alarm:
    """One thing that wakes up again and again, at a time that may be put off or brought forward."""

    __slots__ = ("_do", "_queued_s", "_rank", "_what", "at_s")

    def __init__(self, rank: Rank, do: Handler, what: object) -> None:
        self.at_s: float | None = None
        self._queued_s = inf
        self._rank = int(rank)
        self._do = do
        self._what = what


class _Slices(dict[int, "list[Entry]"]):
    """What falls due in slices of time to come, by their numbers; ``order`` is a heap of these."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[int] = []

    def __missing__(self, number: int) -> list[Entry]:
        heappush(self.order, number)
        entries = self[number] = []
        return entries


class Kernel:
    """Events of one run in order of time; ``now_s`` and ``rank`` are those of the one in progress.

    Only what falls due within a slice of time is kept in order, in the heap; what is later lies in lists
    by slice until its turn comes. Thousands of sessions that think for minutes then cost little.
    """

    __slots__ = (
        "_far",
        "_heap",
        "_horizon_s",
        "_is_halted",
        "_n_far",
        "_n_stale",
        "_serial",
        "n_events",
        "now_s",
        "rank",
    )

    def __init__(self) -> None:
        self.now_s = 0.0
        self.rank: int = 0
        self.n_events = 0
        self._heap: list[Entry] = []
        self._horizon_s = _SLICE_S
        self._far = _Slices()
        self._n_far = 0
        self._serial = 0
        self._n_stale = 0
        self._is_halted = False

    def __len__(self) -> int:
        return len(self._heap) + self._n_far

    def at(self, at_s: float, rank: Rank, do: Handler, what: object) -> None:
        """Have ``do(what)`` called at ``at_s``.

        Raises:
            TimeWentBackError: that is before the present moment, or no time at all.
        """
        if not self.now_s <= at_s < inf:
            raise TimeWentBackError(f"at {self.now_s!r} s something was scheduled for {at_s!r} s")
        self._serial = serial = self._serial + 1
        if at_s < self._horizon_s:
            heappush(self._heap, (at_s, rank, serial, do, what))
        else:
            self._n_far += 1
            self._far[int(at_s / _SLICE_S)].append((at_s, rank, serial, do, what))

    def arm(self, alarm: Alarm, at_s: float | None) -> None:
        """Set when an alarm goes off next; None: not at all. Replaces what was set before.

        An alarm that is put off leaves its entry in place, which is moved when it comes up; one that is
        brought forward leaves a stale entry. Those are swept out before they are half of all.

        Raises:
            TimeWentBackError: that is before the present moment, or no time at all.
        """
        alarm.at_s = at_s
        if at_s is None or alarm._queued_s <= at_s:  # noqa: SLF001
            return
        if not self.now_s <= at_s < inf:
            raise TimeWentBackError(f"at {self.now_s!r} s an alarm was set for {at_s!r} s")
        if alarm._queued_s != inf:  # noqa: SLF001
            self._n_stale += 1
            if self._n_stale > _STALE_MIN and 2 * self._n_stale > len(self):
                self._sweep()
        alarm._queued_s = at_s  # noqa: SLF001
        self._serial += 1
        entry = (at_s, alarm._rank, self._serial, None, alarm)  # noqa: SLF001
        if at_s < self._horizon_s:
            heappush(self._heap, entry)
        else:
            self._n_far += 1
            self._far[int(at_s / _SLICE_S)].append(entry)

    def halt(self) -> None:
        """End :meth:`run` after the event in progress."""
        self._is_halted = True

    def run(self, until_s: float) -> None:
        """Let everything happen that falls due by ``until_s``, and what follows from it.

        The clock then stands at ``until_s``; if the run was halted, or nothing was left before an endless
        ``until_s``, at the last event.
        """
        heap = self._heap
        self._is_halted = False
        n_events = 0
        while not self._is_halted:
            if not heap and not self._next_slice(until_s):
                break
            entry = heappop(heap)
            at_s, rank, _, do, what = entry
            if at_s > until_s:
                heappush(heap, entry)
                break
            self.now_s, self.rank = at_s, rank
            n_events += 1
            if do is not None:
                do(what)
            elif what._queued_s != at_s:  # noqa: SLF001  (the kernel's own half of it)
                self._n_stale -= 1
            else:
                what._queued_s = inf  # noqa: SLF001
                if what.at_s == at_s:
                    what.at_s = None
                    what._do(what._what)  # noqa: SLF001
                elif what.at_s is not None:  # it was put off
                    self.arm(what, what.at_s)
        self.n_events += n_events
        if not self._is_halted and self.now_s < until_s < inf:
            self.now_s = until_s

    def _next_slice(self, until_s: float) -> bool:
        """Bring the next slice in order, the present one being over; False if none begins by ``until_s``."""
        order = self._far.order
        while order and order[0] * _SLICE_S <= until_s:
            number = heappop(order)
            entries = self._far.pop(number)
            self._horizon_s = (number + 1) * _SLICE_S
            if entries:
                self._n_far -= len(entries)
                self._heap[:] = entries
                heapify(self._heap)
                return True
        return False

    def _sweep(self) -> None:
        """Take out the entries of alarms that have an earlier one."""
        self._heap[:] = _fresh(self._heap)
        heapify(self._heap)
        for entries in self._far.values():
            entries[:] = _fresh(entries)
        self._n_far = sum(len(entries) for entries in self._far.values())
        self._n_stale = 0


def _fresh(entries: list[Entry]) -> list[Entry]:
    """Those that are not an alarm's stale ones."""
    return [
        entry
        for entry in entries
        if entry[3] is not None or entry[4]._queued_s == entry[0]  # noqa: SLF001
    ]

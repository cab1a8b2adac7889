"""When each request of a recording would come, and with that the order of all of them.

Where sessions have a common clock, that is their recorded time. Where they have none, a number of
lanes plays them, one session after another on each, at the recorded pace.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

from sim.workload.traces.model import NO_PARENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.workload.traces.model import RecordedSession, RecordedWorkload


def roots(workload: RecordedWorkload) -> list[int]:
    """For each session the number of the one that it descends from, itself if from none."""
    found: list[int] = []
    for number, session in enumerate(workload.sessions):
        found.append(number if session.parent == NO_PARENT else found[session.parent])
    return found


def ordered(workload: RecordedWorkload, lanes: int) -> list[int]:
    """The numbers of all turns in the order of their times."""
    at_s = workload.turns.at_s if workload.has_clock else _played(workload, lanes)
    return sorted(range(len(at_s)), key=at_s.__getitem__)


def _played(workload: RecordedWorkload, lanes: int) -> Sequence[float]:
    """The times of all turns when ``lanes`` lanes play the sessions in their order."""
    timeline = _Timeline(workload)
    free = [(0.0, lane) for lane in range(lanes)]
    for number, session in enumerate(workload.sessions):
        if session.parent == NO_PARENT:
            begin_s, lane = heapq.heappop(free)
            heapq.heappush(free, (timeline.play(number, begin_s), lane))
    return timeline.at_s


class _Timeline:
    """Plays families of sessions: gaps as recorded, answers as long as they took, or the median."""

    def __init__(self, workload: RecordedWorkload) -> None:
        self._workload = workload
        latencies = [took for took in workload.turns.latency_s if not math.isnan(took)]
        self._usual_s = median(latencies) if latencies else 0.0
        self._children: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number, session in enumerate(workload.sessions):
            if session.parent != NO_PARENT:
                self._children[session.parent, session.after_turn].append(number)
        self.at_s = array("d", bytes(8 * len(workload.turns)))

    def play(self, number: int, begin_s: float) -> float:
        """Time a session and its sub-agents from ``begin_s`` on; answers when all are over."""
        session = self._workload.sessions[number]
        over_s, joined_s = self._play_children(number, -1, begin_s)
        now_s = begin_s
        for step, turn in enumerate(range(session.first, session.end)):
            now_s = self._start_of(turn, now_s, joined_s)
            self.at_s[turn] = now_s
            took_s = self._workload.turns.latency_s[turn]
            now_s += self._usual_s if math.isnan(took_s) else took_s
            children_s, joined_s = self._play_children(number, step, now_s)
            over_s = max(over_s, children_s)
        return max(now_s, over_s)

    def _start_of(self, turn: int, answered_s: float, joined_s: float | None) -> float:
        rest_s = self._workload.turns.rest_s[turn]
        if joined_s is not None and not math.isnan(rest_s):
            return max(answered_s, joined_s + rest_s)
        return answered_s + self._workload.turns.gap_s[turn]

    def _play_children(
        self, parent: int, after_turn: int, answered_s: float
    ) -> tuple[float, float | None]:
        """When all sub-agents that begin here are over, and when those are that are waited for."""
        over_s, joined_s = answered_s, None
        for number in self._children.get((parent, after_turn), ()):
            child: RecordedSession = self._workload.sessions[number]
            end_s = self.play(number, answered_s + child.delay_s)
            over_s = max(over_s, end_s)
            if child.is_joined:
                joined_s = end_s if joined_s is None else max(joined_s, end_s)
        return over_s, joined_s

"""One router asking its replicas how they are, as ``router/control/observe/probes.py`` does.

Each replica is asked at its own phase, a period apart; what it says then is heard ``delay_s`` later, with
the router's own share as it is on arrival. There is no jitter: phases are drawn, and stay.

Asking costs nothing while nothing changes. A poll *sleeps* when every answer from now on would change
nothing that a decision can depend on, and is woken when that may end:

- The process listens, its engine is idle, its loads are not frozen; the router holds it ready, knows its
  models, has nothing in flight there, and its last report is that of an idle engine: no request, no token
  in use, no foreign load. An idle engine says the same until a request is submitted to it, which wakes the
  poll (as does everything a fault does to it). A router drops a report that is 10 s old; what it then
  reads of the replica (no foreign load, nothing waiting, nothing in use, all of its own requests
  unreported) is what this very report says, for it contains none of its requests.
- The process does not listen and the router knows that it is down: a connection refused again changes
  nothing. The process's start wakes the poll.

Phases are kept: the answers after waking come at the times at which they would have come, and an answer
that was under way at that moment, or else the last one before it, is delivered: a report's age is judged. Where an answer takes a period or longer, polls never sleep.
An answer of a ready replica that the router holds ready is not told to its health table, whose state it
would not change.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor
from typing import TYPE_CHECKING, Final

from router.state.fleet.replica import Description, Observation
from router.state.health.table import Event, State
from sim.engine.rules import SHORTEST_PREFILL
from sim.kernel import Rank

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from router.core import RouterCore
    from sim.engine.requests import LoadReport
    from sim.fleet.parts import SimReplica
    from sim.kernel import Kernel

MODEL = "simulated"
"""The one model that all replicas serve."""

_POLL: Final = Rank.POLL
_DELIVERY: Final = Rank.DELIVERY
_READY: Final = State.READY


class Poll:
    """One replica's turn in the round.

    It is asked for the time ``n`` a whole number of periods after its phase, -1 on joining. ``is_asleep``
    and ``is_over`` end it for now or for good; ``idle`` is the report that it sleeps on, None
    where nobody listens.
    """

    __slots__ = ("idle", "is_asleep", "is_over", "n", "phase_s", "replica")

    def __init__(self, replica: SimReplica, phase_s: float) -> None:
        self.replica = replica
        self.phase_s = phase_s
        self.n = -1
        self.is_asleep = False
        self.idle: LoadReport | None = None
        self.is_over = False


class Polls:
    """All polls of one router.

    ``catch_up`` is called before the core is told anything, ``on_lost`` when a poll brought to light that a
    replica stands still.
    """

    def __init__(
        self,
        kernel: Kernel,
        core: RouterCore,
        *,
        period_s: float,
        delay_s: float,
        dice: random.Random,
        catch_up: Callable[[float], None],
        on_lost: Callable[[SimReplica], None],
        can_sleep: bool = True,
    ) -> None:
        assert period_s > 0.0, f"polls {period_s} s apart"
        assert delay_s >= 0.0, f"an answer comes {delay_s} s after it was asked for"
        self._kernel = kernel
        self._core = core
        self._period_s = period_s
        self._delay_s = delay_s
        self._dice = dice
        self._catch_up = catch_up
        self._on_lost = on_lost
        self._can_sleep = can_sleep and delay_s < period_s
        self._polls: dict[int, Poll] = {}

    def watch(self, replica: SimReplica, *, is_first: bool) -> None:
        """Ask a replica that joined: now, and then at its phase. ``is_first``: have the answer now."""
        self.forget(replica)
        poll = Poll(replica, self._kernel.now_s + self._dice.random() * self._period_s)
        self._polls[replica.index] = poll
        if is_first:
            report = replica.report(self._kernel.now_s) if replica.is_listening else None
            self._hear((poll, report))
        else:
            self._kernel.at(self._kernel.now_s, _POLL, self._ask, poll)

    def forget(self, replica: SimReplica) -> None:
        """Ask a replica no more."""
        poll = self._polls.pop(replica.index, None)
        if poll is not None:
            _end(poll)

    def stop(self) -> None:
        """Ask nobody any more."""
        for poll in self._polls.values():
            _end(poll)
        self._polls.clear()

    def changed(self, replica: SimReplica) -> None:
        """Wake the poll of a replica, if it sleeps."""
        poll = self._polls.get(replica.index)
        if poll is not None and poll.is_asleep:
            self._wake(poll)

    def _wake(self, poll: Poll) -> None:
        poll.is_asleep = False
        poll.replica.n_asleep -= 1
        kernel = self._kernel
        now_s = kernel.now_s
        n = self._next(poll, now_s, is_inclusive=kernel.rank < _POLL)
        poll.n = n - 1
        if n > 0:
            asked_s = poll.phase_s + (n - 1) * self._period_s
            heard_s = asked_s + self._delay_s
            if heard_s > now_s or (heard_s == now_s and kernel.rank < _DELIVERY):
                # Asked while it slept, and on its way still: the next is asked when that has come.
                report = None if poll.idle is None else _repeated(poll.idle, asked_s)
                kernel.at(heard_s, _DELIVERY, self._hear, (poll, report))
                return
            if poll.idle is not None:
                # The last that came while it slept: an idle engine's, of before whatever wakes the poll.
                report = _repeated(poll.idle, asked_s)
                idle = Observation(
                    0,
                    0,
                    0,
                    heard_s,
                    stamp=(report.at_s,),
                    prefill_tokens=report.total_prefill_uncached_tokens,
                    prefill_busy_us=int(report.total_prefill_busy_s * 1e6),
                )
                self._core.members.observed(poll.replica.replica_id, idle)
        poll.n = n
        kernel.at(poll.phase_s + n * self._period_s, _POLL, self._ask, poll)

    def _next(self, poll: Poll, now_s: float, *, is_inclusive: bool) -> int:
        """Which time the replica is asked next: at its phase, a whole number of periods on."""
        phase_s, period_s = poll.phase_s, self._period_s
        n = max(0, ceil((now_s - phase_s) / period_s) - 1)
        at_s = phase_s + n * period_s
        while at_s < now_s or (at_s == now_s and not is_inclusive):
            n += 1
            at_s = phase_s + n * period_s
        return n

    def _ask(self, poll: Poll) -> None:
        """Read the replica's state; the answer is on its way."""
        if poll.is_over:
            return
        kernel, replica = self._kernel, poll.replica
        report = replica.report(kernel.now_s) if replica.is_listening else None
        kernel.at(kernel.now_s + self._delay_s, _DELIVERY, self._hear, (poll, report))

    def _hear(self, heard: tuple[Poll, LoadReport | None]) -> None:
        """An answer has come: tell the core, and ask again at the next phase, or sleep."""
        poll, report = heard
        if poll.is_over:
            return
        kernel = self._kernel
        now_s = kernel.now_s
        self._catch_up(now_s)
        can_sleep = (
            self._refused(poll, now_s) if report is None else self._told(poll, report, now_s)
        )
        if can_sleep and self._can_sleep:
            poll.is_asleep = True
            poll.replica.n_asleep += 1
            poll.idle = report
            return
        n = poll.n + 1
        at_s = poll.phase_s + n * self._period_s
        if at_s < now_s:  # answers take longer than a period
            n = self._next(poll, now_s, is_inclusive=True)
            at_s = poll.phase_s + n * self._period_s
        poll.n = n
        kernel.at(at_s, _POLL, self._ask, poll)

    def _refused(self, poll: Poll, now_s: float) -> bool:
        """Nobody listens there; answers whether the poll may sleep."""
        replica = poll.replica
        self._core.members.heard(replica.replica_id, Event.CONNECT_FAILED, now_s)
        known = self._core.fleet.get(replica.replica_id)
        return known is not None and known.state is State.DOWN and not replica.is_listening

    def _told(self, poll: Poll, report: LoadReport, now_s: float) -> bool:
        """The replica is ready and told its load; answers whether the poll may sleep."""
        replica = poll.replica
        replica_id = replica.replica_id
        core = self._core
        known = core.fleet.get(replica_id)
        if known is None:
            return False
        if known.state is not _READY:
            before = core.members.heard(replica_id, Event.PROBE_OK, now_s)
            if before in (State.STARTING, State.DOWN) or not known.models:
                core.members.described(replica_id, _description(replica))
        load = known.load
        ours, backlog_s = load.inflight, load.backlog_s
        running, waiting = report.running, report.waiting
        uncached, used = report.waiting_uncached_tokens, report.used_tokens
        used_ratio = used / replica.facts.capacity_tokens
        core.members.observed(
            replica_id,
            Observation(
                running,
                waiting,
                uncached,
                now_s,
                ours,
                backlog_s,
                used_ratio,
                (report.at_s,),
                report.total_prefill_uncached_tokens,
                int(report.total_prefill_busy_s * 1e6),
            ),
        )
        if known.load.is_lost:
            self._on_lost(replica)
        return (
            not (ours or running or waiting or uncached or used)
            and known.state is _READY
            and replica.is_listening
            and replica.frozen is None
            and replica.is_idle
        )


def _repeated(idle: LoadReport, asked_s: float) -> LoadReport:
    """An idle engine's report as it repeats it by then, each second."""
    return replace(idle, at_s=idle.at_s + floor(asked_s - idle.at_s))


def _end(poll: Poll) -> None:
    poll.is_over = True
    poll.replica.n_asleep -= poll.is_asleep


def _description(replica: SimReplica) -> Description:
    """What a replica says it is."""
    return Description(
        capacity_tokens=replica.capacity_tokens,
        profile=replica.facts.name,
        models=(MODEL,),
        reports_cached=True,
        chunk_tokens=replica.facts.chunk_tokens,
        is_short_first=replica.model.rules.order == SHORTEST_PREFILL,
    )

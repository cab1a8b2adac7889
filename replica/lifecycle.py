"""The life of one supervised engine, as a state machine that is told what happened and when.

Pure: it answers what is to be done (orders) and knows neither processes nor sockets; the supervisor
carries the orders out and tells what came of them. ``docs/replica.md`` has the same table in words.

| state | what happens in it | left for |
|---|---|---|
| preparing | the last engine's remains end, back-off, then ports and files are looked at | starting, failed, stopped |
| starting | the engine loads; asked ``/ready`` | warming, preparing, draining |
| warming | real generations; the shared head is filled | ready, preparing, draining |
| ready | routers send it requests | draining, preparing |
| draining | routers let go, then the engine ends | stopped |
| stopped | nothing runs; it was asked for | |
| failed | nothing runs; it gave up | |
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random


class State(StrEnum):
    """Where one engine's life stands."""

    PREPARING = "preparing"
    STARTING = "starting"
    WARMING = "warming"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    FAILED = "failed"


class Order(StrEnum):
    """What is to be done now, in the order given."""

    PREPARE = "prepare"
    """Look at ports, files and rights; answer with ``prepared`` or ``failed``."""
    START = "start"
    """Start the engine and ask whether it is ready; answer with ``answered``, ``failed``, ``ended``."""
    WARM = "warm"
    """Let it generate; answer with ``warmed`` or ``failed``."""
    JOIN = "join"
    """Register with the routers, and watch for a hang (``failed``)."""
    WITHDRAW = "withdraw"
    """Tell the routers that the engine is gone; nothing is waited for."""
    LEAVE = "leave"
    """Tell the routers to send nothing more and wait until they let go: ``left``."""
    TERM = "term"
    """Ask the engine to finish what runs and to end: ``ended``."""
    KILL = "kill"
    """End everything of the engine at once: ``ended``."""


class _Phase(StrEnum):
    ENDING = "ending"  # of preparing: the last engine is not gone yet
    WAITING = "waiting"  # of preparing: back-off
    LOOKING = "looking"  # of preparing
    LEAVING = "leaving"  # of draining: the routers let go
    FINISHING = "finishing"  # of draining: the engine was asked to end
    KILLING = "killing"  # of draining
    ONLY = "only"  # of all other states


TERMINAL: Final = frozenset({State.STOPPED, State.FAILED})


@dataclass(slots=True, frozen=True)
class Fault:
    """Why an engine cannot be started, or did not go on; ``code`` is stable and kebab-case.

    ``heals`` says that another start may succeed with nothing changed by a person.
    """

    code: str
    text: str
    heals: bool = True


@dataclass(slots=True, frozen=True)
class Rules:
    """How long and how often. All in seconds but ``restarts_max``."""

    start_s_max: float = 2400.0
    """Until ``/ready``: loading half a terabyte of weights takes up to 30 minutes."""
    warm_s_max: float = 900.0
    """Kernels are compiled during the first generations."""
    drain_s_max: float = 300.0
    """Until routers have let go and running requests have ended; then they are cut off."""
    stop_s_max: float = 30.0
    """From the request to end on, at least: SGLang looks every 5 s whether anything runs."""
    kill_s_max: float = 20.0
    """Until killed processes are gone: one that waits for a driver can stay."""
    restarts_max: int = 5
    """Within ``restart_window_s``; one more fault is final. 0: the first one is."""
    restart_window_s: float = 900.0
    backoff_s_min: float = 1.0
    backoff_s_max: float = 60.0


class Lifecycle:
    """One engine's state. Each method tells what happened at ``now_s`` and answers the orders.

    What no longer matters (an answer that comes after the engine ended, say) answers no order and
    changes nothing. Times must not go back.
    """

    def __init__(self, rules: Rules, dice: random.Random) -> None:
        self._rules = rules
        self._dice = dice
        self._phase = _Phase.WAITING
        self._until_s: float | None = None
        self._drain_until_s = 0.0
        self._restarts_s: deque[float] = deque(maxlen=max(1, rules.restarts_max))
        self._is_asked = False
        self._is_in_use = False  # when it was asked to stop
        self.was_ready = False
        """It has been ready at some time."""
        self.state = State.PREPARING
        self.since_s = 0.0
        self.fault: Fault | None = None
        """The last one, also when it healed."""
        self.restarts_total = 0
        self.is_cut = False
        """Requests may have been cut off by the stop: a deadline passed, or the engine failed in it."""

    @property
    def next_s(self) -> float | None:
        """When ``tick`` is due; None if nothing is waited for with a deadline."""
        return self._until_s

    @property
    def is_over(self) -> bool:
        """Nothing will happen any more."""
        return self.state in TERMINAL

    @property
    def is_backing_off(self) -> bool:
        """It waits before the next start."""
        return self.state is State.PREPARING and self._phase is _Phase.WAITING

    # What happened

    def begin(self, now_s: float) -> list[Order]:
        """The first start."""
        assert self.state is State.PREPARING, self.state
        return self._look(now_s)

    def prepared(self, now_s: float) -> list[Order]:
        """Ports, files and rights are as they should be."""
        if self._phase is not _Phase.LOOKING:
            return []
        self._enter(State.STARTING, now_s, self._rules.start_s_max)
        return [Order.START]

    def answered(self, now_s: float) -> list[Order]:
        """The engine says that it is ready."""
        if self.state is not State.STARTING:
            return []
        self._enter(State.WARMING, now_s, self._rules.warm_s_max)
        return [Order.WARM]

    def warmed(self, now_s: float) -> list[Order]:
        """It has generated what was asked of it."""
        if self.state is not State.WARMING:
            return []
        self._enter(State.READY, now_s, None)
        self.was_ready = True
        return [Order.JOIN]

    def failed(self, fault: Fault, now_s: float) -> list[Order]:
        """It cannot be started, or is of no use as it is: its start, warm-up or progress failed."""
        match self.state:
            case State.PREPARING if self._phase is _Phase.LOOKING:
                self.fault = fault
                return self._again(now_s)
            case State.STARTING | State.WARMING | State.READY:
                orders = [Order.WITHDRAW] if self.state is State.READY else []
                self.fault = fault
                self._enter(State.PREPARING, now_s, self._rules.kill_s_max, _Phase.ENDING)
                return [*orders, Order.KILL]
            case State.DRAINING if self._phase is not _Phase.KILLING:
                self.fault = fault
                self.is_cut = True
                return self._kill(now_s)
            case _:
                return []

    def ended(self, fault: Fault | None, now_s: float) -> list[Order]:
        """No process of the engine is left; ``fault`` is None if it ended as it was asked to."""
        match self.state:
            case State.STARTING | State.WARMING | State.READY:
                orders = [Order.WITHDRAW] if self.state is State.READY else []
                self.fault = fault or Fault("exited-early", "the engine ended by itself")
                return [*orders, *self._again(now_s)]
            case State.PREPARING if self._phase is _Phase.ENDING:
                return self._again(now_s)
            case State.DRAINING:
                if self._phase is _Phase.LEAVING or (
                    self._phase is _Phase.FINISHING and fault is not None
                ):
                    self.fault = fault
                    self.is_cut = self.is_cut or self._is_in_use
                self._enter(State.STOPPED, now_s, None)
                return []
            case _:
                return []

    def left(self, now_s: float) -> list[Order]:
        """No router has a request there any more, or will send one."""
        if self.state is not State.DRAINING or self._phase is not _Phase.LEAVING:
            return []
        return self._finish(now_s)

    def stop(self, now_s: float) -> list[Order]:
        """It is asked for that the engine ends, in order. Asked again, nothing changes."""
        if self._is_asked or self.is_over:
            return []
        self._is_asked = True
        self._is_in_use = self.state is State.READY
        self._drain_until_s = now_s + self._rules.drain_s_max
        match self.state:
            case State.PREPARING:
                if self._phase is not _Phase.ENDING:
                    self._enter(State.STOPPED, now_s, None)
                return []
            case State.STARTING | State.WARMING:
                self._drain_until_s = now_s  # nothing runs there that anybody waits for
                return self._finish(now_s)
            case State.READY:
                self._enter(State.DRAINING, now_s, self._rules.drain_s_max, phase=_Phase.LEAVING)
                return [Order.LEAVE]
            case _:
                return []

    def stop_now(self, now_s: float) -> list[Order]:
        """It is asked for that everything ends at once."""
        if self.is_over or self._phase is _Phase.KILLING:
            return []
        has_joined = Order.LEAVE in self.stop(now_s)
        if self._phase not in (_Phase.LEAVING, _Phase.FINISHING):
            return []  # nothing is left, or what is left of the last engine is being killed
        self.is_cut = self.is_cut or self._is_in_use
        withdrawn = [Order.WITHDRAW] if has_joined else []  # routers need not wait to be told
        return [*withdrawn, *self._kill(now_s)]

    def tick(self, now_s: float) -> list[Order]:
        """Time has passed: a deadline may be over, or the back-off."""
        if self._until_s is None or now_s < self._until_s:
            return []
        match self.state, self._phase:
            case State.PREPARING, _Phase.WAITING:
                return self._look(now_s)
            case State.STARTING, _:
                text = f"not ready {self._rules.start_s_max:g} s after its start"
                return self.failed(Fault("start-timeout", text), now_s)
            case State.WARMING, _:
                text = f"the warm-up took more than {self._rules.warm_s_max:g} s"
                return self.failed(Fault("warmup-failed", text), now_s)
            case State.DRAINING, (_Phase.LEAVING | _Phase.FINISHING) as phase:
                return self._overdue(phase, now_s)
            case _:
                return self._stuck(now_s)

    # What follows

    def _overdue(self, phase: _Phase, now_s: float) -> list[Order]:
        """A step of the drain takes too long: the next one."""
        if phase is _Phase.LEAVING:
            self.is_cut = True
            return self._finish(now_s)
        self.is_cut = self.is_cut or self._is_in_use
        return self._kill(now_s)

    def _enter(
        self, state: State, now_s: float, within_s: float | None, phase: _Phase = _Phase.ONLY
    ) -> None:
        if state is not self.state:
            self.since_s = now_s
        self.state, self._phase = state, phase
        self._until_s = None if within_s is None else now_s + within_s

    def _look(self, now_s: float) -> list[Order]:
        self._enter(State.PREPARING, now_s, None, _Phase.LOOKING)
        return [Order.PREPARE]

    def _again(self, now_s: float) -> list[Order]:
        """The engine is gone: wait and start it again, unless that is not wanted or of no use."""
        fault, rules = self.fault, self._rules
        assert fault is not None, "it failed"
        if self._is_asked:
            self._enter(State.STOPPED, now_s, None)
            return []
        while self._restarts_s and self._restarts_s[0] <= now_s - rules.restart_window_s:
            self._restarts_s.popleft()
        n_recent = len(self._restarts_s)
        # What was right once may be right again: a port that the last engine still holds, say.
        is_final = not fault.heals and not self.was_ready
        if is_final or n_recent >= rules.restarts_max:
            self._enter(State.FAILED, now_s, None)
            return []
        self._restarts_s.append(now_s)
        self.restarts_total += 1
        longest_s = min(rules.backoff_s_max, rules.backoff_s_min * 2.0**n_recent)
        # Half of it at random: replicas that fell together do not come back together.
        wait_s = longest_s * self._dice.uniform(0.5, 1.0)
        self._enter(State.PREPARING, now_s, wait_s, _Phase.WAITING)
        return []

    def _finish(self, now_s: float) -> list[Order]:
        left_s = max(self._rules.stop_s_max, self._drain_until_s - now_s)
        self._enter(State.DRAINING, now_s, left_s, _Phase.FINISHING)
        return [Order.TERM]

    def _kill(self, now_s: float) -> list[Order]:
        self._enter(State.DRAINING, now_s, self._rules.kill_s_max, _Phase.KILLING)
        return [Order.KILL]

    def _stuck(self, now_s: float) -> list[Order]:
        text = f"killed processes were still there after {self._rules.kill_s_max:g} s"
        self.fault = Fault("not-ended", text, heals=False)
        self._enter(State.FAILED, now_s, None)
        return []

"""One supervised replica: carries out what its lifecycle orders, and tells it what came of that."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp

from replica.lifecycle import Lifecycle, Order, Rules, State
from replica.supervise.checks.diagnosis import cause
from replica.supervise.checks.faults import fault, remedy
from replica.supervise.checks.preflight import launch_fault
from replica.supervise.counts import Counts
from replica.supervise.engine.lines import LastLines
from replica.supervise.engine.process import EngineProcess, Exit
from replica.supervise.talk.identity import facts_of
from replica.supervise.talk.probe import Probe, ProbeError, url_of
from replica.supervise.talk.routers import Entry, Membership, RouterAccess
from replica.supervise.talk.warmup import warm_up, words_of
from replica.supervise.talk.watch import hung

if TYPE_CHECKING:
    import random
    from collections.abc import Coroutine, Mapping
    from typing import Any

    from replica.engines.base import Launch
    from replica.lifecycle import Fault
    from replica.supervise.engine.printer import Printer

_log = logging.getLogger("homeport.replica")

_LOOK_S: Final = 0.04
_LOOK_S_MAX: Final = 1.0
_PREFLIGHT_S_MAX: Final = 120.0  # a folder on a network may take its time
_END_WORDS: Final = 20
_MEMORY_EVENTS: Final = Path("/sys/fs/cgroup/memory.events")
_CLEAN: Final = (0, -signal.SIGTERM)
_OF_PROBES: Final = re.compile(
    r'"GET /(?:ready|health|health_generate|metrics|server_info|v1/loads\S*|v1/models) HTTP/1\.1" (?:200|503)'
)
"""Lines of the engine's access log that only say that it is watched, several a second."""
_OF_BINDINGS: Final = re.compile(
    r"^nanobind: | - leaked (?:instance|type|function) | - \.\.\. skipped remainder|^See https://nanobind"
)
"""What SGLang's libraries print at each end, dozens of lines behind the cause."""
_ALLOWED: Final[dict[State, frozenset[str]]] = {
    State.PREPARING: frozenset({"prepare", "withdraw"}),
    State.STARTING: frozenset({"ready", "withdraw"}),
    State.WARMING: frozenset({"warm", "withdraw"}),
    State.READY: frozenset({"join", "watch"}),
    State.DRAINING: frozenset({"leave", "watch"}),
    State.STOPPED: frozenset(),
    State.FAILED: frozenset(),
}
"""The jobs that have a point in each state; entering another one ends them."""


@dataclass(slots=True, frozen=True)
class Care:
    """How all replicas of a machine are looked after. Times in seconds."""

    rules: Rules
    routers: tuple[RouterAccess, ...]
    environment: Mapping[str, str]
    lease_s: float = 15.0
    health_s_max: float = 30.0
    """SGLang's own check gives up after 20 s without output."""
    step_s_max: float | None = None
    """The longest step of the engine, instead of what its launch says."""
    advertised_host: str | None = None


class Supervised:
    """One engine's process, a replica or several; ``run`` returns when it has stopped or failed for good."""

    def __init__(
        self,
        names: tuple[str, ...],
        launch: Launch,
        care: Care,
        printer: Printer,
        dice: random.Random,
    ) -> None:
        assert len(names) == launch.count, (names, launch.count)
        self.names = names
        self.name = names[0] if len(names) == 1 else f"{names[0]}+{len(names) - 1}"
        self.launch = launch
        self.counts = Counts()
        self.lifecycle = Lifecycle(care.rules, dice)
        self._care = care
        self._printer = printer
        self._dice = dice
        self._last = LastLines()
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._tasks = asyncio.TaskGroup()
        self._told = asyncio.Event()
        self._engine: EngineProcess | None = None
        self._engine_task: asyncio.Task[None] | None = None
        self._end_wanted: Order | None = None
        self._memberships: list[tuple[str, str, Membership]] = []
        self._probes: list[Probe] = []
        self._n_killed_before = 0
        self._shown = State.PREPARING, True

    @property
    def registered(self) -> list[tuple[str, str, bool]]:
        """Replica, router, and whether it is registered there."""
        return [(name, url, member.is_registered) for name, url, member in self._memberships]

    @property
    def pid(self) -> int | None:
        """Its engine's first process."""
        return None if self._engine is None else self._engine.pid

    def stop(self, *, is_now: bool) -> None:
        """Let it end: in order, or at once."""
        lifecycle = self.lifecycle
        self._follow((lifecycle.stop_now if is_now else lifecycle.stop)(self._now_s()))

    async def run(self) -> None:
        """Supervise it until it is over."""
        async with AsyncExitStack() as stack:
            for port in self._ports:
                probe = Probe.opened(self.launch, port)
                self._probes.append(await stack.enter_async_context(probe))
            session = await stack.enter_async_context(aiohttp.ClientSession())
            self._memberships = [
                (name, router.url, self._member(name, port, router, session))
                for name, port in zip(self.names, self._ports, strict=True)
                for router in self._care.routers
            ]
            await stack.enter_async_context(self._tasks)
            if not self.lifecycle.is_over:  # a signal may have come before
                self._follow(self.lifecycle.begin(self._now_s()))
            while not self.lifecycle.is_over:
                self._told.clear()
                try:
                    async with asyncio.timeout_at(self.lifecycle.next_s):
                        await self._told.wait()
                except TimeoutError:
                    self._follow(self.lifecycle.tick(self._now_s()))
            if self._engine_task is not None:
                self._engine_task.cancel()  # what could not be ended is left to its guardian

    # What the lifecycle orders

    def _follow(self, orders: list[Order]) -> None:
        """Carry out orders, and end the jobs that have lost their point."""
        state = self.lifecycle.state
        shown = state, self.lifecycle.is_backing_off
        if shown != self._shown:
            self._shown = shown
            self._show_state()
        for key, job in list(self._jobs.items()):
            if key.partition(":")[0] not in _ALLOWED[state]:
                job.cancel()
                del self._jobs[key]
        for order in orders:
            self._begin(order)
        self._told.set()

    def _begin(self, order: Order) -> None:
        match order:
            case Order.PREPARE:
                self._job("prepare", self._prepare())
            case Order.START:
                self._end_wanted = None
                work = self._run_engine()
                self._engine_task = self._tasks.create_task(work, name=f"engine {self.name}")
                self._job("ready", self._wait_ready())
            case Order.WARM:
                self._job("warm", self._warm())
            case Order.JOIN:
                for index, (_, _, member) in enumerate(self._memberships):
                    self._job(f"join:{index}", member.join())
                self._job("watch", self._watch())
            case Order.WITHDRAW:
                for index, (_, _, member) in enumerate(self._memberships):
                    work = member.withdraw(is_for_good=self.lifecycle.is_over)
                    self._job(f"withdraw:{index}", work)
            case Order.LEAVE:
                self._job("leave", self._leave())
            case Order.TERM | Order.KILL:
                self._end_wanted = order
                self._end()

    def _job(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        assert key not in self._jobs or self._jobs[key].done(), key
        self._jobs[key] = self._tasks.create_task(work, name=f"{key} {self.name}")

    def _end(self) -> None:
        watch = self._jobs.pop("watch", None) if self._end_wanted else None
        if watch is not None:
            watch.cancel()  # an engine that ends need not answer
        if self._engine is not None:
            if self._end_wanted is Order.TERM:
                self._engine.term()
            elif self._end_wanted is Order.KILL:
                self._engine.kill()

    # The jobs

    async def _prepare(self) -> None:
        path = self._environment.get("PATH", "")
        try:
            async with asyncio.timeout(_PREFLIGHT_S_MAX):
                found = await asyncio.to_thread(launch_fault, self.launch, path)
        except TimeoutError:
            found = fault("model-missing", f"its files did not answer in {_PREFLIGHT_S_MAX:g} s")
        if found is None:
            self._follow(self.lifecycle.prepared(self._now_s()))
        else:
            self._fail(found)

    async def _run_engine(self) -> None:
        self._last.clear()
        self.counts.starts_total += 1
        self._n_killed_before = _oom_kills()
        try:
            self._engine = await EngineProcess.start(
                self.launch.argv, self._environment, self._on_line
            )
            self._end()  # it may have been wanted meanwhile
            ended = await self._engine.ended()
        except OSError as failure:
            _log.error("cannot start a process replica=%s error=%s", self.name, failure)
            ended = Exit(None, failure.errno)
        self._engine = None
        self._ended(ended)

    async def _wait_ready(self) -> None:
        began_s, wait_s = self._now_s(), _LOOK_S
        for probe in self._probes:
            while not await probe.is_ready():
                await asyncio.sleep(wait_s)
                wait_s = min(_LOOK_S_MAX, 1.05 * wait_s)
        self.counts.start_s = self._now_s() - began_s
        self._follow(self.lifecycle.answered(self._now_s()))

    async def _warm(self) -> None:
        began_s = self._now_s()
        try:
            async with asyncio.TaskGroup() as group:
                for probe in self._probes:
                    work = warm_up(probe, self.launch, within_s=self._care.rules.warm_s_max)
                    group.create_task(work)
        except* ProbeError as failures:
            self._fail(fault("warmup-failed", f"it does not generate: {words_of(failures)}"))
        else:
            self.counts.warmup_s = self._now_s() - began_s
            self._follow(self.lifecycle.warmed(self._now_s()))

    async def _watch(self) -> None:
        step_s = self._care.step_s_max or self.launch.step_s_max
        quiet_s = await hung(
            self._probes,
            step_s_max=step_s,
            health_s_max=self._care.health_s_max,
            on_quiet=self._on_quiet,
        )
        text = f"no token and no load report for {quiet_s:.0f} s, and its longest step takes {step_s:g} s"
        self._fail(fault("hung", text))

    async def _leave(self) -> None:
        within_s = self._care.rules.drain_s_max
        async with asyncio.TaskGroup() as group:
            for _, _, member in self._memberships:
                group.create_task(member.leave(within_s))
        self._follow(self.lifecycle.left(self._now_s()))

    # What happened

    def _fail(self, found: Fault) -> None:
        self._note_fault(found)
        self._follow(self.lifecycle.failed(found, self._now_s()))

    def _ended(self, ended: Exit) -> None:
        lifecycle = self.lifecycle
        found: Fault | None = None
        if not (lifecycle.state is State.DRAINING and (ended.was_killed or ended.code in _CLEAN)):
            found = cause(
                ended,
                self._last.all(),
                was_ready=lifecycle.state in (State.READY, State.DRAINING),
                oom_killed=_oom_kills() > self._n_killed_before,
            )
            if not ended.was_killed:
                self._note_fault(found)
        self._follow(lifecycle.ended(found, self._now_s()))

    def _on_line(self, line: str) -> None:
        self.counts.lines_total += 1
        if _OF_PROBES.search(line):
            return
        if not _OF_BINDINGS.search(line):
            self._last.add(line)
        self._printer.pass_on(f"{self.name}| {line}")

    def _on_quiet(self, quiet_s: float) -> None:
        self.counts.quiet_s = quiet_s

    def _note_fault(self, found: Fault) -> None:
        self.counts.faults[found.code] += 1
        _log.warning(
            'fault replica=%s code=%s what="%s" remedy="%s"',
            self.name,
            found.code,
            found.text,
            remedy(found.code),
        )

    def _show_state(self) -> None:
        lifecycle = self.lifecycle
        match lifecycle.state:
            case State.READY:
                for name, port in zip(self.names, self._ports, strict=True):
                    url = url_of(self.launch.host, port)
                    self._printer.say(f"replica ready url={url} id={name} pid={self.pid}")
                _log.info("state replica=%s state=ready", self.name)
            case State.FAILED:
                self._show_failure()
            case State.PREPARING if lifecycle.is_backing_off:
                rules = self._care.rules
                _log.info(
                    "state replica=%s state=preparing again_in_s=%.1f restarts=%d restarts_max=%d window_s=%g",
                    self.name,
                    max(0.0, (lifecycle.next_s or 0.0) - self._now_s()),
                    lifecycle.restarts_total,
                    rules.restarts_max,
                    rules.restart_window_s,
                )
            case _:
                _log.info("state replica=%s state=%s", self.name, lifecycle.state)

    def _show_failure(self) -> None:
        """The one message of a replica that gave up: cause, remedy, last lines."""
        found = self.lifecycle.fault
        assert found is not None, "it failed"
        tried = self.lifecycle.restarts_total
        words = f" after {tried} restarts" if tried else ""
        _log.error("state replica=%s state=failed code=%s", self.name, found.code)
        what = f"homeport replica run: {self.name} failed{words}: {found.text}."
        lines = [f"{what} To do: {remedy(found.code)} [{found.code}]"]
        if said := self._last.all()[-_END_WORDS:]:
            lines += ["  its last lines:", *(f"  | {line}" for line in said)]
        self._printer.note("\n".join(lines))

    # Parts

    @property
    def _environment(self) -> dict[str, str]:
        return {**self._care.environment, **self.launch.environment}

    @property
    def _ports(self) -> range:
        return range(self.launch.port, self.launch.port + self.launch.count)

    def _member(
        self, name: str, port: int, router: RouterAccess, session: aiohttp.ClientSession
    ) -> Membership:
        launch, care = self.launch, self._care
        is_wildcard = launch.host in ("", "0.0.0.0", "::")  # noqa: S104  (compared, not bound)
        host = care.advertised_host or (None if is_wildcard else launch.host)
        return Membership(
            session,
            router,
            Entry(name, host, port, facts_of(launch), care.lease_s),
            dice=self._dice,
            note=lambda words: _log.info("%s replica=%s", words, name),
            count=lambda beat: self.counts.beats.update([(router.url, beat.value)]),
        )

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


def _oom_kills() -> int:
    """Processes that the kernel killed in this container for want of memory, since it began."""
    try:
        for line in _MEMORY_EVENTS.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    except (OSError, ValueError):
        pass
    return 0

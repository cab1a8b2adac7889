"""Whether a ready engine still moves: a hung scheduler sits behind an HTTP server that goes on answering.

A load report that changes is movement: SGLang tells one after each prefill step, every 15 generation
steps, and about once a second when idle. While it stands still the engine is asked to make a token
(``/health``), which it answers for a long prompt only after that; so it is taken for hung when both are
so: no token was made in the time that a check takes, and no report changed for longer than the longest step.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from replica.supervise.talk.probe import Load, Probe

_ROUND_S: Final = 1.0
_QUIET_S: Final = 4.0
"""Without a change before a health check is begun."""
_SLACK_S: Final = 2.0
"""Beyond the longest step: a report is read up to a second late."""
_PAUSE_S: Final = 5.0
"""A round that came so late tells of us and not of the engine: the machine stood still."""


@dataclass(slots=True)
class Progress:
    """When an engine was last seen to move. Pure: it is told the time."""

    patience_s: float
    moved_s: float
    _stamp: tuple[float, ...] | None = None
    _round_s: float | None = None

    def read(self, load: Load | None, now_s: float) -> None:
        """A round has asked for the report; None if there was none."""
        if self._round_s is not None and now_s - self._round_s > _PAUSE_S:
            self.moved_s = now_s
        self._round_s = now_s
        if load is not None and load.stamp != self._stamp:
            self._stamp = load.stamp
            self.moved_s = now_s

    def made_token(self, now_s: float) -> None:
        """A health check came back well."""
        self.moved_s = now_s

    def quiet_s(self, now_s: float) -> float:
        """For how long it has not moved."""
        return now_s - self.moved_s

    def is_suspect(self, now_s: float) -> bool:
        """It should be asked for a token."""
        return self.quiet_s(now_s) >= min(_QUIET_S, self.patience_s)

    def is_hung(self, now_s: float) -> bool:
        """After a health check that failed: it has stood still for longer than it may."""
        return self.quiet_s(now_s) >= self.patience_s


async def hung(
    probes: Sequence[Probe],
    *,
    step_s_max: float,
    health_s_max: float,
    on_quiet: Callable[[float], None],
) -> float:
    """Watch an engine at its ports until one is hung; answers for how many seconds it has stood still.

    ``on_quiet`` is told that each round.
    """
    async with asyncio.TaskGroup() as tasks:
        watches = [
            tasks.create_task(_hung(probe, step_s_max + _SLACK_S, health_s_max, on_quiet))
            for probe in probes
        ]
        done, others = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
        for watch in others:
            watch.cancel()
    return max(watch.result() for watch in done)


async def _hung(
    probe: Probe, patience_s: float, health_s_max: float, on_quiet: Callable[[float], None]
) -> float:
    clock = asyncio.get_running_loop().time
    progress = Progress(patience_s, clock())
    async with asyncio.TaskGroup() as tasks:
        check: asyncio.Task[bool] | None = None
        while True:
            progress.read(await probe.load(), clock())
            now_s = clock()
            on_quiet(progress.quiet_s(now_s))
            if check is None and progress.is_suspect(now_s):
                check = tasks.create_task(probe.is_healthy(health_s_max), name="health check")
            elif check is not None and check.done():
                if check.result():
                    progress.made_token(now_s)
                elif progress.is_hung(now_s):
                    return progress.quiet_s(now_s)
                check = None
            await asyncio.sleep(_ROUND_S)

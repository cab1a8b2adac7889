"""All replicas of one machine below one supervisor: one signal for all, one exit code."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from replica.lifecycle import State
from replica.supervise.checks import faults
from replica.supervise.engine.printer import Printer
from replica.supervise.engine.process import adopt_orphans
from replica.supervise.replica import Care, Supervised

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from replica.engines.base import Launch

_log = logging.getLogger("homeport.replica")

_FLUSH_S: Final = 2.0
_FORMAT: Final = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s"
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_BY_SIGNAL: Final = 128


@dataclass(slots=True, frozen=True)
class MetricsPlace:
    """Where the supervisor's own metrics are served."""

    host: str
    port: int


class _PrinterHandler(logging.Handler):
    """Log lines in order with the engines' own, and as patiently."""

    def __init__(self, printer: Printer) -> None:
        super().__init__()
        self._printer = printer

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._printer.note(self.format(record))


async def supervise(
    named: Sequence[tuple[tuple[str, ...], Launch]],
    care: Care,
    *,
    dice: random.Random,
    metrics: MetricsPlace | None = None,
    log_level: int = logging.INFO,
) -> int:
    """Run replicas, given as launches with their replicas' names, until all have stopped or failed; the exit code.

    The first SIGTERM, SIGINT or SIGHUP drains them all, the second ends them at once.

    Raises:
        OSError: the metrics' port cannot be bound, or a router's CA file cannot be used.
    """
    adopt_orphans()
    printer = Printer()
    handler = _PrinterHandler(printer)
    handler.setFormatter(logging.Formatter(_FORMAT, datefmt="%Y-%m-%dT%H:%M:%S"))
    _log.addHandler(handler)
    _log.setLevel(log_level)
    _log.propagate = False
    replicas = [Supervised(names, launch, care, printer, dice) for names, launch in named]
    signals = _Signals(replicas)
    try:
        async with AsyncExitStack() as stack:
            if metrics is not None:
                from replica.supervise.metrics import SupervisorMetrics, served  # noqa: PLC0415

                exposed = SupervisorMetrics(replicas, lambda: printer.dropped_total)
                place = served(replicas, exposed, host=metrics.host, port=metrics.port)
                url = await stack.enter_async_context(place)
                printer.say(f"supervisor listening metrics_url={url}/metrics")
            with signals:
                async with asyncio.TaskGroup() as tasks:
                    for replica in replicas:
                        tasks.create_task(replica.run(), name=replica.name)
        return signals.exit_code()
    finally:
        _log.removeHandler(handler)
        printer.close(_FLUSH_S)


class _Signals:
    """Hands signals on to every replica while its block lasts."""

    def __init__(self, replicas: Sequence[Supervised]) -> None:
        self._replicas = replicas
        self._numbers: list[signal.Signals] = []

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            # One that was started with `nohup` outlives its terminal.
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            loop.add_signal_handler(number, self._came, number)

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def _came(self, number: signal.Signals) -> None:
        self._numbers.append(number)
        is_now = len(self._numbers) > 1
        _log.info("signal name=%s what=%s", number.name, "end at once" if is_now else "drain")
        for replica in self._replicas:
            replica.stop(is_now=is_now)

    def exit_code(self) -> int:
        """What the whole came to: the worst of all replicas."""
        lives = [replica.lifecycle for replica in self._replicas]
        failed = [life for life in lives if life.state is State.FAILED]
        if len(self._numbers) > 1:
            return _BY_SIGNAL + self._numbers[1]
        if any(life.was_ready or (life.fault and life.fault.heals) for life in failed):
            return faults.GAVE_UP
        if failed:
            return faults.CANNOT_START
        return faults.CUT if any(life.is_cut for life in lives) else faults.STOPPED

"""From a path to the figures of the traffic there, as a table and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from sim.workload.figures.measure import Options, measure
from sim.workload.figures.table import table_of
from sim.workload.traces.errors import TraceError, clean
from sim.workload.traces.formats import read_workload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sim.workload.traces.model import Limits, RecordedSession, RecordedWorkload

_STEP_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class StatsOptions:
    """How traffic is read and measured.

    ``has_no_long`` leaves sessions out that have a prompt over the limit, instead of cutting it;
    ``turns_min`` those with fewer turns. The rest: ``read_workload`` and ``measure``.
    """

    limits: Limits
    lanes: int
    pool_tokens: tuple[int, ...] = ()
    format_name: str | None = None
    share_heads: bool = False
    has_no_long: bool = False
    turns_min: int = 1


class Report(NamedTuple):
    """The figures twice."""

    table: str
    json: str


def stats_of(path: Path, options: StatsOptions, say: Callable[[str], None]) -> Report:
    """Read and measure the traffic under ``path``; ``say`` is told now and then how far it is.

    Raises:
        TraceError: it cannot be read, or no session is left.
    """
    progress = _Progress(say)
    workload = read_workload(
        path,
        format_name=options.format_name,
        share_heads=options.share_heads,
        on_bytes=progress.read,
    )
    if options.has_no_long or options.turns_min > 1:
        workload = workload.selected(lambda session: _is_kept(workload, session, options))
        if not len(workload.turns):
            raise TraceError(f"{clean(str(path))}: no session is left by the options")
    figures = measure(
        workload,
        Options(options.limits, options.lanes, options.pool_tokens),
        progress.measured,
    )
    as_json = msgspec.json.format(msgspec.json.encode(asdict(figures)), indent=1)
    return Report(table_of(figures, clean(path.name)), as_json.decode())


def _is_kept(workload: RecordedWorkload, session: RecordedSession, options: StatsOptions) -> bool:
    if session.end - session.first < options.turns_min:
        return False
    longest = max(workload.turns.prompt_tokens[session.first : session.end], default=0)
    return not options.has_no_long or longest <= options.limits.context_tokens_max


class _Progress:
    """Says how far it is, each time a good deal more is done."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._next_bytes = _STEP_BYTES

    def read(self, n_bytes: int) -> None:
        """So much was read."""
        if n_bytes >= self._next_bytes:
            self._next_bytes = n_bytes - n_bytes % _STEP_BYTES + _STEP_BYTES
            self._say(f"read {n_bytes >> 20} MiB")

    def measured(self, n_turns: int) -> None:
        """So many requests were replayed."""
        self._say(f"measured {n_turns:,} requests")

"""From a scenario's description of the traffic to the traffic being played."""

from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from sim.workload.fitted.generator import generate
from sim.workload.fitted.mix import mixed
from sim.workload.play.content import Content, Sharing
from sim.workload.play.lanes import LaneOptions, Lanes
from sim.workload.play.opening import OpenLoop
from sim.workload.traces.formats import read_workload
from sim.workload.traces.model import CONTEXT_TOKENS_MAX, Limits, read_only

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sim.workload.play.turns import Play
    from sim.workload.traces.model import RecordedWorkload


_OPEN: Final = "open"
_MIDDLE: Final = "middle"
_WARM: Final = "warm"


class Traffic(Protocol):
    """What is read of a scenario's workload (:class:`sim.scenario.model.WorkloadSpec`)."""

    @property
    def trace(self) -> str | None:
        """The path of recorded traffic, None for fitted."""

    @property
    def trace_format(self) -> str | None:
        """The recording's format, None for what is recognised."""

    @property
    def pace(self) -> str:
        """``closed`` or ``open``."""

    @property
    def is_once(self) -> bool:
        """Each session is played once."""

    @property
    def start(self) -> str:
        """Where a lane's first session begins: ``middle``, ``warm`` or ``beginning``."""

    @property
    def rate_factor(self) -> float:
        """Recorded pauses, in open loop times, are divided by it."""

    @property
    def gap_s_max(self) -> float:
        """Longer pauses are cut to this."""

    @property
    def context_tokens_max(self) -> int:
        """Longer prompts are cut to this."""

    @property
    def has_shared_heads(self) -> bool:
        """Sessions have tools and system prompt in common."""

    @property
    def preset(self) -> str:
        """The parameters of fitted traffic."""

    @property
    def mix(self) -> Mapping[str, float]:
        """What is changed of them, by name."""


def load(
    spec: Traffic, seed: int, on_bytes: Callable[[int], None] | None = None
) -> RecordedWorkload:
    """The traffic's sessions: read from ``spec.trace``, or drawn by seed where that is None.

    Contexts and pauses are cut as ``spec`` says, and answers so that they fit the context window
    behind their prompts. ``on_bytes`` hears how many bytes were read.

    Raises:
        TraceError: the trace cannot be read; the message names file, place and value.
        ValueError: ``spec.preset`` or a parameter in ``spec.mix`` does not exist, or is out of range.
    """
    if spec.trace is None:
        workload = generate(mixed(spec.mix, spec.preset), seed=seed)
    else:
        workload = read_workload(
            Path(spec.trace),
            format_name=spec.trace_format,
            share_heads=spec.has_shared_heads,
            on_bytes=on_bytes,
        )
    cut = workload.cut(Limits(spec.context_tokens_max, spec.gap_s_max))
    room = max(CONTEXT_TOKENS_MAX, spec.context_tokens_max)
    outputs = array(
        "Q",
        (
            min(output, max(1, room - prompt))
            for prompt, output in zip(cut.turns.prompt_tokens, cut.turns.output_tokens, strict=True)
        ),
    )
    return replace(cut, turns=replace(cut.turns, output_tokens=read_only(outputs)))


def places_of(spec: Traffic, workload: RecordedWorkload, *, page_tokens: int) -> Content:
    """Where the prompts of what ``load`` answered lie; every play of the traffic can have it.

    The engine's pages have ``page_tokens`` each.

    Raises:
        ValueError: an open loop of traffic without a clock.
    """
    if spec.pace == _OPEN:
        if not workload.has_clock:
            raise ValueError(
                f"sessions of {workload.format!r} traffic have no common clock, so it has no open loop; "
                f'use pace = "closed"'
            )
        return Content(workload, page_tokens, Sharing(is_whole=True))
    return Content(workload, page_tokens, Sharing(has_heads=spec.has_shared_heads))


def build(spec: Traffic, content: Content, *, n_lanes: int, seed: int) -> Play:
    """What ``places_of`` answered, as a play; in closed loop on ``n_lanes`` lanes."""
    if spec.pace == _OPEN:
        return OpenLoop(content, rate_factor=spec.rate_factor)
    is_warm = spec.start == _WARM
    is_from_middle = is_warm or spec.start == _MIDDLE
    options = LaneOptions(
        n_lanes,
        seed,
        is_from_middle=is_from_middle,
        is_warm=is_warm,
        is_once=spec.is_once,
        rate_factor=spec.rate_factor,
    )
    return Lanes(content, options)

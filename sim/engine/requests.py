"""What goes into the engine model and what comes out of it: requests, events, loads, refusals."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

_NO_PAGES: Final = array("Q")


class EndReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    ABORT = "abort"
    CRASH = "crash"


class EngineError(Exception):
    """The engine refuses a request; nothing of it was kept."""


class QueueFull(EngineError):
    """As many requests wait as may wait; the message says how many."""


class PromptTooLong(EngineError):
    """Prompt and output can never fit the context window or the device pool."""


@dataclass(slots=True)
class EngineRequest:
    """One generation. The model reads it and never changes it; what is in its arrays must not change.

    The cache keeps them instead of copies.

    ``pages`` holds one id a full page of the prompt. An id stands for its page *and everything
    before it*, so two prompts share an id exactly when they are equal up to the end of that page.
    The array may go on behind the prompt, and grow: prompts that continue one another can have one.
    ``output_pages`` holds the ids of the further pages that fill up while the output is generated,
    beginning with the one that the prompt's last partial page belongs to; where it is shorter than
    what is generated, the pages without an id are not kept.

    ``output_tokens_max`` is what the client asked for at most, all that the engine knows beforehand;
    None stands for ``output_tokens``. A higher ``priority`` is served first where that is the order.
    """

    rid: str
    prompt_tokens: int
    output_tokens: int
    pages: array[int] = field(default_factory=lambda: _NO_PAGES)
    output_pages: array[int] = field(default_factory=lambda: _NO_PAGES)
    priority: int = 0
    output_tokens_max: int | None = None


@dataclass(slots=True)
class Began:
    """The prefill is done and the first output token is out (it counts as one token).

    ``cached_tokens`` were not computed, ``host_tokens`` of them were loaded from the host tier.
    """

    rid: str
    at_s: float
    cached_tokens: int
    host_tokens: int


@dataclass(slots=True)
class Progress:
    """``n_tokens`` (at least 1) were generated since the last event of this request."""

    rid: str
    at_s: float
    n_tokens: int


@dataclass(slots=True)
class Ended:
    """The last event of a request, exactly one for each that was submitted.

    ``n_tokens`` were generated since its last event (may be 0), ``output_tokens`` in all:
    1 at :class:`Began` + every :class:`Progress` + ``n_tokens``; 0 if it ended before it began.
    """

    rid: str
    at_s: float
    n_tokens: int
    output_tokens: int
    reason: EndReason


Event = Began | Progress | Ended


@dataclass(slots=True, frozen=True)
class Loads:
    """State and counters of a replica at one moment; counters only grow, a flush keeps them.

    ``running`` are admitted (prefill or decode), ``waiting`` are not. ``used_tokens`` are held by
    admitted requests, ``cached_tokens`` could be evicted; both are whole pages of the device tier.
    ``waiting_uncached_tokens`` uses the match made when each request was submitted. The
    ``total_prefill_*`` counters and ``total_verify_steps`` count finished steps; the cached and
    prompt totals count requests at each admission, so their quotient is the hit ratio. A retracted
    request is admitted again, with what it has generated as part of its prompt.
    """

    running: int
    waiting: int
    waiting_uncached_tokens: int
    used_tokens: int
    cached_tokens: int
    capacity_tokens: int
    host_tokens: int
    host_capacity_tokens: int
    max_running_requests: int
    total_prefill_uncached_tokens: int
    total_prefill_busy_s: float
    total_decode_busy_s: float
    total_verify_steps: int
    total_prompt_tokens: int
    total_cached_tokens: int
    total_host_tokens: int
    total_generated_tokens: int
    total_ended: int
    total_aborted: int
    total_retracted: int

    @property
    def usage_ratio(self) -> float:
        """Share of the device pool that admitted requests hold, 0 to 1."""
        return self.used_tokens / self.capacity_tokens

    @property
    def hit_ratio(self) -> float:
        """Cached over prompt tokens of all requests admitted so far; 0 before the first."""
        return (
            self.total_cached_tokens / self.total_prompt_tokens if self.total_prompt_tokens else 0.0
        )


@dataclass(slots=True)
class LoadReport:
    """What a replica told of itself last; :mod:`sim.engine.reporting` says when it does.

    The state is that at ``at_s``, just after the next step was formed. ``running`` requests generate.
    One whose prompt is being computed is neither running nor waiting; what is left of a prompt that
    two steps more will not finish counts as ``waiting_uncached_tokens``. For the waiting prompts,
    ``waiting_tokens`` long, that number is an estimate from the hit ratio of recent prefill steps.
    ``used_tokens`` are whole pages that hold computed tokens of admitted requests. ``hit_ratio`` is
    the last prefill step's, ``generated_per_s`` 0 while idle. The ``total_prefill_*`` counters lack
    the step that ended at ``at_s``, unless the engine fell idle with it.

    ``decode_moments`` are sums over generation steps of 1, batch, microseconds, batch squared, batch
    times microseconds, and tokens; None before the first step.
    """

    at_s: float
    running: int = 0
    waiting: int = 0
    waiting_tokens: int = 0
    waiting_uncached_tokens: int = 0
    used_tokens: int = 0
    generated_per_s: float = 0.0
    hit_ratio: float = 0.0
    total_prefill_uncached_tokens: int = 0
    total_prefill_busy_s: float = 0.0
    decode_moments: tuple[float, ...] | None = None

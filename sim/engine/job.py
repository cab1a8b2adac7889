"""One request inside the engine."""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from array import array

    from sim.engine.pool import Holding, Lookup
    from sim.engine.requests import EngineRequest

ROUNDING: Final = 1e-9
"""Of accumulated accept lengths: 25 steps of 5.84 are 146 tokens."""


class Job:
    """One request inside the engine, from submission to release.

    ``tokens`` output tokens are out, as of the last step that ended; ``reported`` of them were told in
    events. Of those, ``base_tokens`` do not come from the ``steps`` generation steps it has made since it
    was admitted, each of which yields ``accept``; it is done after ``steps_total``. ``start_tokens`` are
    its prompt and these ``base_tokens``. ``fill_tokens`` is what a prefill has to cover: its prompt, and
    after a retraction what it had generated.
    ``ended_tokens`` is set when its last event is out, which for an abort is before its release.
    ``total_pages`` is its whole sequence, the last page counted in full; ``sorted_pages`` what it found
    cached when the queue was arranged last, with its look-up of ``sorted_version``. ``prefill_s`` is what
    its prefill takes with that of ``priced_version``, ``compute_s`` of it to compute what is behind
    ``priced_pages``.
    """

    __slots__ = (
        "accept",
        "base_tokens",
        "compute_s",
        "computed_tokens",
        "ended_tokens",
        "fill_tokens",
        "holding",
        "host_load_s",
        "is_running",
        "lookup",
        "output_tokens",
        "output_tokens_max",
        "prefill_s",
        "priced_pages",
        "priced_version",
        "prompt_tokens",
        "queued_serial",
        "reported",
        "request",
        "sorted_pages",
        "sorted_version",
        "start_tokens",
        "steps",
        "steps_total",
        "tokens",
        "total_pages",
        "uncached_tokens",
    )

    def __init__(
        self, request: EngineRequest, lookup: Lookup, *, total_pages: int, accept: float
    ) -> None:
        self.request = request
        self.lookup = lookup
        self.accept = accept
        self.total_pages = total_pages
        asked = request.output_tokens_max
        output = self.output_tokens = request.output_tokens
        self.output_tokens_max = output if asked is None else asked
        self.fill_tokens = self.prompt_tokens = request.prompt_tokens
        self.holding: Holding | None = None
        self.host_load_s = 0.0
        self.is_running = False
        self.computed_tokens = self.uncached_tokens = self.queued_serial = self.sorted_pages = 0
        self.base_tokens = self.tokens = self.reported = 0
        self.start_tokens = self.steps = self.steps_total = 0
        self.ended_tokens: int | None = None
        self.priced_pages = self.priced_version = self.sorted_version = -1
        self.compute_s = self.prefill_s = 0.0

    def yielded(self) -> None:
        """A prefill step has yielded one token; the others take ``steps_total`` steps."""
        tokens = self.base_tokens = self.tokens = self.tokens + 1
        self.start_tokens = self.prompt_tokens + tokens
        self.steps = 0
        rest = self.output_tokens - tokens
        accept = self.accept
        steps = ceil((rest - ROUNDING) / accept) if rest else 0
        while floor(accept * steps + ROUNDING) < rest:
            steps += 1
        self.steps_total = steps

    def restart(self, page_tokens: int) -> tuple[array[int], int]:
        """It was retracted: what it has generated is to be prefilled with its prompt.

        Answers the pages of all that, and how many of them may be found cached.
        """
        self.holding = None
        self.is_running = False
        self.priced_pages = self.priced_version = self.sorted_version = -1
        request = self.request
        self.fill_tokens = request.prompt_tokens + self.tokens
        pages, n_pages = request.pages, request.prompt_tokens // page_tokens
        if len(pages) >= n_pages:
            pages = (pages[:n_pages] + request.output_pages)[: self.fill_tokens // page_tokens]
        return pages, min(len(pages), (self.fill_tokens - 1) // page_tokens)

    def tokens_after(self, steps: int) -> int:
        """Output tokens after that many generation steps, the fraction carried along."""
        tokens = self.base_tokens + floor(self.accept * steps + ROUNDING)
        output = self.output_tokens
        return tokens if tokens < output else output

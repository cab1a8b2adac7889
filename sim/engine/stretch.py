"""Steps of the engine as spans of time: one prefill step, or a stretch of many alike steps.

While the set of running requests stays the same, each generation step is longer than the one
before by the same amount (contexts grow evenly), so the end of step k is a quadratic in k and
nothing has to be done a step, let alone a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, sqrt
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replica.hardware.profiles import EngineFacts
    from sim.engine.pool import Holding
    from sim.engine.requests import EngineRequest

_ROUNDING: Final = 1e-9  # of accumulated accept lengths: 25 steps of 5.84 are 146 tokens


class Job:
    """One request inside the engine, from submission to release.

    ``steps`` are finished generation steps, ``steps_total`` how many it needs after the prefill;
    ``accept`` is the tokens each yields. ``reported`` output tokens were told in events.
    ``ended_tokens`` is set when its last event is out, which for an abort is before its release.
    """

    __slots__ = (
        "accept",
        "computed_tokens",
        "ended_tokens",
        "holding",
        "host_load_s",
        "reported",
        "request",
        "steps",
        "steps_total",
        "uncached_tokens",
    )

    def __init__(self, request: EngineRequest, *, uncached_tokens: int) -> None:
        self.request = request
        self.uncached_tokens = uncached_tokens
        self.holding: Holding | None = None
        self.host_load_s = 0.0
        self.computed_tokens = 0
        self.accept = 1.0
        self.steps = 0
        self.steps_total = 0
        self.reported = 0
        self.ended_tokens: int | None = None

    def begin(self, accept: float) -> None:
        """The prefill is done: one token is out, the others take ``steps_total`` steps."""
        self.accept = accept
        rest = self.request.output_tokens - 1
        steps = ceil((rest - _ROUNDING) / accept) if rest else 0
        while floor(accept * steps + _ROUNDING) < rest:
            steps += 1
        self.steps_total = steps
        self.reported = 1

    def tokens_after(self, steps: int) -> int:
        """Output tokens after that many generation steps, the fraction carried along."""
        return min(self.request.output_tokens, 1 + floor(self.accept * steps + _ROUNDING))

    @property
    def context_tokens(self) -> float:
        """Tokens in front of its next one, on average over fractional accept lengths."""
        return self.request.prompt_tokens + 1 + self.accept * self.steps


@dataclass(slots=True)
class PrefillStep:
    """One prefill step: ``parts`` are jobs and the prompt tokens of each that it computes."""

    start_s: float
    end_s: float
    parts: list[tuple[Job, int]]


class Stretch:
    """``n_steps`` generation steps of one set of jobs from ``start_s`` on.

    Step 1 takes ``first_s``, each later one ``growth_s`` more than the one before. All jobs together
    are ``batch``, and yield ``tokens_per_step`` on average.
    """

    __slots__ = ("batch", "end_s", "first_s", "growth_s", "n_steps", "start_s", "tokens_per_step")

    def __init__(
        self,
        start_s: float,
        *,
        first_s: float,
        growth_s: float,
        n_steps: int,
        batch: int = 1,
        tokens_per_step: float = 1.0,
    ) -> None:
        assert first_s > 0.0, f"a step takes {first_s} s"
        assert 0.0 <= growth_s <= first_s, f"steps of {first_s} s grow by {growth_s} s"
        self.start_s = start_s
        self.first_s = first_s
        self.growth_s = growth_s
        self.n_steps = n_steps
        self.batch = batch
        self.tokens_per_step = tokens_per_step
        self.end_s = self.end_of(n_steps)

    def end_of(self, step: int) -> float:
        """When step ``step`` (from 1) ends; the start for 0."""
        return self.start_s + step * (self.first_s + self.growth_s * (step - 1) / 2)

    def finished_by(self, now_s: float) -> int:
        """Steps that have ended at ``now_s``, which is not before the start."""
        if now_s >= self.end_s:
            return self.n_steps
        elapsed = now_s - self.start_s
        linear = self.first_s - self.growth_s / 2
        steps = int(2 * elapsed / (linear + sqrt(linear * linear + 2 * self.growth_s * elapsed)))
        while self.end_of(steps + 1) <= now_s:  # the root is a float: settle by the end times
            steps += 1
        while steps and self.end_of(steps) > now_s:
            steps -= 1
        return steps

    def cut(self, now_s: float) -> None:
        """End the stretch with the step in progress at ``now_s``; a step that ends now is the last."""
        steps = self.finished_by(now_s)
        if self.end_of(steps) < now_s:
            steps += 1
        if steps < self.n_steps:
            self.n_steps = steps
            self.end_s = self.end_of(steps)


def stretch_of(jobs: Iterable[Job], facts: EngineFacts, start_s: float) -> Stretch:
    """The generation steps until the first of ``jobs`` (at least one) has all its tokens."""
    batch = 0
    context = growth = 0.0
    n_steps: int | None = None
    for job in jobs:
        batch += 1
        context += job.context_tokens
        growth += job.accept
        left = job.steps_total - job.steps
        if n_steps is None or left < n_steps:
            n_steps = left
    assert n_steps, "a stretch needs running jobs, each with a step to go"
    first_s = facts.step_s(batch, context / batch)
    later_s = facts.step_s(batch, (context + growth) / batch)
    return Stretch(
        start_s,
        first_s=first_s,
        growth_s=later_s - first_s,
        n_steps=n_steps,
        batch=batch,
        tokens_per_step=growth,
    )

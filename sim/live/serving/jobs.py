"""One accepted request, from its place at the engine to its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.live.serving.wire import Usage

if TYPE_CHECKING:
    from sim.live.rendering.answer import Answer, Cursor
    from sim.live.serving.pacer import Generation
    from sim.live.serving.wire import Writer


@dataclass(slots=True)
class Job:
    """One accepted request."""

    generation: Generation
    answer: Answer
    cursor: Cursor
    writer: Writer
    has_late_head: bool
    has_head: bool = False

    def usage(self) -> Usage:
        """The token counts as they stand; all 0 if it ended before it began."""
        generation = self.generation
        if generation.ended is not None and generation.began is None:
            return Usage(0, 0, 0)
        return Usage(
            prompt_tokens=generation.prompt_tokens,
            output_tokens=generation.n_tokens,
            cached_tokens=generation.cached_tokens,
            reasoning_tokens=self.cursor.reasoning_tokens(generation.n_tokens),
        )

    @property
    def finish(self) -> str:
        """Why it ended, in the chat API's words."""
        return "abort" if self.generation.is_aborted else self.answer.finish

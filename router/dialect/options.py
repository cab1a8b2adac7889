"""Settings of the dialects, as the composition root hands them over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.dialect.body.reading import adapter

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True, frozen=True)
class DialectOptions:
    """How requests are read and changed.

    ``session_header`` is a header (any case) whose value is the session key before all others.
    ``is_billing_line_removed``: Claude Code's billing line, which changes with every request, is
    left out of what is forwarded. ``is_usage_asked``: streamed chat is asked for its usage where
    the client did not ask, and the added event is taken out again. ``is_inline_system_hoisted``
    and ``is_old_reasoning_stripped`` say what the model's template does with system messages
    inside an Anthropic conversation, and with the reasoning of finished turns.
    ``is_thinking_in_head``: it shows how hard to think (the switch, the effort) before or among
    the messages; Kimi's shows it only behind the last one, where the answer begins. The memo of
    rendered parts holds at most ``memo_segments_max`` segments (about 150 bytes each).
    ``adapter_of`` answers the LoRA adapter that a model's name stands for, None for none.
    """

    session_header: str | None = None
    is_billing_line_removed: bool = True
    is_usage_asked: bool = True
    is_inline_system_hoisted: bool = False
    is_old_reasoning_stripped: bool = True
    is_thinking_in_head: bool = False
    memo_segments_max: int = 300_000
    adapter_of: Callable[[str], str | None] = adapter

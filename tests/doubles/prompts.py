"""Prompt facts made of plain numbers, for tests that drive the core without a dialect.

``prompt(head, body)`` is a prompt whose segments are the given numbers, 4,000 bytes (1,000 tokens)
each; equal leading numbers are an equal prefix, as with real chains.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from router.dialect.base import PromptFacts, SessionSource

if TYPE_CHECKING:
    from collections.abc import Sequence

SEGMENT_BYTES = 4_000


def prompt(
    segments: Sequence[int],
    *,
    key: str = "",
    head_segments: int = 0,
    output_tokens_max: int | None = None,
) -> PromptFacts:
    """Facts of a streamed chat request; without a key the first segments identify the session."""
    chain = array("Q", segments)
    return PromptFacts(
        dialect="chat",
        model="kimi",
        is_stream=True,
        session_key=key or f"chain:{segments[min(head_segments, len(segments) - 1)]:016x}",
        session_source=SessionSource.HEADER if key else SessionSource.CHAIN,
        chain=chain,
        ends_bytes=array("I", [(i + 1) * SEGMENT_BYTES for i in range(len(chain))]),
        head_segments=head_segments,
        output_tokens_max=output_tokens_max,
        n_messages=1,
    )

"""Dialects: the wire formats of the APIs, read and written without I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.dialect.anthropic_messages import AnthropicMessages
from router.dialect.memo import PartMemo
from router.dialect.openai_chat import OpenAiChat
from router.dialect.options import DialectOptions
from router.dialect.responses import KeptResponses, OpenAiResponses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from router.dialect.base import Dialect

__all__ = ["FACTORIES", "DialectOptions", "dialects"]

FACTORIES: Final[Mapping[str, Callable[[DialectOptions, PartMemo], Dialect]]] = {
    "/v1/chat/completions": OpenAiChat,
    "/v1/messages": AnthropicMessages,
    "/v1/responses": OpenAiResponses,
    "/v1/responses/{id}": KeptResponses,
}
"""Request path -> dialect; a new API is a new row."""


def dialects(options: DialectOptions) -> Mapping[str, Dialect]:
    """Request path -> dialect; they share one memo of rendered parts."""
    memo = PartMemo(options.memo_segments_max)
    return {path: factory(options, memo) for path, factory in FACTORIES.items()}

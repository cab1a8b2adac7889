"""Dialects: the wire formats of the APIs, read and written without I/O."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from router.dialect.body.memo import PartMemo
from router.dialect.chat.openai_chat import OpenAiChat
from router.dialect.messages.anthropic_messages import AnthropicMessages
from router.dialect.options import DialectOptions
from router.dialect.responses.openai_responses import KeptResponses, OpenAiResponses
from router.dialect.text.calls import CountTokens, EngineCall
from router.dialect.text.openai_completions import OpenAiCompletions
from router.dialect.text.sglang_generate import SglangGenerate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from router.dialect.base import Dialect

__all__ = ["FACTORIES", "METHODS", "DialectOptions", "dialects"]

FACTORIES: Final[Mapping[str, Callable[[DialectOptions, PartMemo], Dialect]]] = {
    "/v1/chat/completions": OpenAiChat,
    "/v1/messages": AnthropicMessages,
    "/v1/responses": OpenAiResponses,
    "/v1/responses/{id}": KeptResponses,
    "/v1/responses/{id}/cancel": KeptResponses,
    "/v1/responses/{id}/input_items": KeptResponses,
    "/v1/completions": OpenAiCompletions,
    "/generate": SglangGenerate,
    "/v1/messages/count_tokens": CountTokens,
    "/v1/embeddings": partial(EngineCall, "embeddings"),
    "/v1/rerank": partial(EngineCall, "rerank"),
    "/v1/score": partial(EngineCall, "score"),
    "/v1/tokenize": partial(EngineCall, "tokenize"),
    "/v1/detokenize": partial(EngineCall, "detokenize"),
    "/tokenize": partial(EngineCall, "tokenize"),
    "/detokenize": partial(EngineCall, "detokenize"),
}
"""Request path -> dialect; a new API is a new row. A path may have one variable part, in braces."""

_KEPT: Final = (b"GET", b"POST", b"DELETE")

METHODS: Final[Mapping[str, tuple[bytes, ...]]] = {
    "/generate": (b"POST", b"PUT"),
    "/v1/rerank": (b"POST", b"PUT"),
    "/v1/responses/{id}": _KEPT,
    "/v1/responses/{id}/cancel": _KEPT,
    "/v1/responses/{id}/input_items": _KEPT,
}
"""The methods of those paths that take others than POST."""


def dialects(options: DialectOptions) -> Mapping[str, Dialect]:
    """Request path -> dialect; they share one memo of rendered parts."""
    memo = PartMemo(options.memo_segments_max)
    return {path: factory(options, memo) for path, factory in FACTORIES.items()}

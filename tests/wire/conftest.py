"""The wire tests run on the loop that serves in production."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import uvloop

from router.dialect.anthropic_messages import AnthropicMessages
from router.dialect.memo import PartMemo
from router.dialect.openai_chat import OpenAiChat
from router.dialect.options import DialectOptions

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from router.dialect.base import Dialect


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def table() -> Mapping[str, Dialect]:
    """Two dialects that change nothing of what passes."""
    options = DialectOptions(is_usage_asked=False)
    memo = PartMemo(1000)
    return {
        "/v1/chat/completions": OpenAiChat(options, memo),
        "/v1/messages": AnthropicMessages(options, memo),
    }

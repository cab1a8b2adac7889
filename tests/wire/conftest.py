"""The wire tests run on the loop that serves in production."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import uvloop

from router.dialect import dialects
from router.dialect.options import DialectOptions

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from router.dialect.base import Dialect


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def table() -> Mapping[str, Dialect]:
    """The dialects, set to change nothing of what passes."""
    return dialects(DialectOptions(is_usage_asked=False))

"""Real SGLang takes the router's word of how urgent a request is from a header."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.doubles.engines import MODEL

if TYPE_CHECKING:
    from tests.doubles.engines import Member

pytestmark = pytest.mark.engine

ASKED = {"model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_priority_comes_by_header(engines: dict[str, Member], path: str) -> None:
    """This one answers 503 to whoever gives a priority, as it does not serve by any: that shows that it was read."""
    fine = engines["fine"]
    info = httpx2.get(f"{fine.url}/server_info", timeout=30.0).json()
    assert info["enable_priority_scheduling"] is False
    url = f"{fine.url}{path}"
    assert httpx2.post(url, json=ASKED, timeout=30.0).status_code == 200
    hinted = httpx2.post(url, json=ASKED, headers={"x-override-priority": "1"}, timeout=30.0)
    assert hinted.status_code == 503

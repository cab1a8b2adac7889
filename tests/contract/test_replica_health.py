"""Whether a replica may be sent to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from tests.doubles.engines import Member


async def test_a_ready_replica_says_so(plain: Member) -> None:
    async with aiohttp.ClientSession(plain.url) as http, http.get("/ready") as response:
        assert response.status == 200

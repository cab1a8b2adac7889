"""Whole answers through a router, several at once, and what its control API says of the fleet."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_S = 0.05


@dataclass
class Asked:
    """Chats that were asked for, not streamed, each a session of its own."""

    url: str
    tokens: int = 8_000
    statuses: list[int] = field(default_factory=list)
    replicas: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    async def one(self, http: aiohttp.ClientSession, number: int, model: str = "kimi-k2.6") -> None:
        body = {
            "model": model,
            "messages": [{"role": "user", "content": f"Task {number}: count."}],
            "max_tokens": self.tokens,
            "homeport_emulate": {"output_tokens": self.tokens},
        }
        headers = {"x-claude-code-session-id": f"session-{number}"}
        try:
            async with http.post(
                f"{self.url}/v1/chat/completions", json=body, headers=headers
            ) as answer:
                self.statuses.append(answer.status)
                self.replicas.append(answer.headers.get("x-homeport-replica", ""))
                text = await answer.text()
                if answer.status != 200:
                    self.faults.append(text)
        except aiohttp.ClientError as failure:
            self.faults.append(repr(failure))


async def fleet(http: aiohttp.ClientSession, admin_url: str) -> dict[str, dict[str, Any]]:
    """The router's replicas by id."""
    async with http.get(f"{admin_url}/fleet") as answer:
        return {row["id"]: row for row in (await answer.json())["replicas"]}


async def fleet_when(
    http: aiohttp.ClientSession,
    admin_url: str,
    holds: Callable[[dict[str, dict[str, Any]]], bool],
    *,
    within_s: float = 20.0,
) -> dict[str, dict[str, Any]]:
    """The fleet once something holds of it; fails with what it was last."""
    until_s = asyncio.get_running_loop().time() + within_s
    while not holds(found := await fleet(http, admin_url)):
        assert asyncio.get_running_loop().time() < until_s, found
        await asyncio.sleep(_LOOK_S)
    return found

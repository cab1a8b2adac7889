"""Reads the router's control API: the fleet and the newest sessions, as ``docs/control-api.md``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, TypeVar

import aiohttp
import msgspec

if TYPE_CHECKING:
    from types import TracebackType

_T = TypeVar("_T")
_CALL_S_MAX: Final = 2.0


class Replica(msgspec.Struct):
    """What the demo shows of one replica."""

    id: str
    state: str
    inflight: int = 0
    live_sessions: int = 0
    live_tokens: int = 0
    capacity_tokens: int | None = None
    requests_total: int = 0
    prompt_tokens_total: int = 0
    cached_tokens_total: int = 0

    @property
    def hit_ratio(self) -> float | None:
        """Cached share of its prompt tokens, or None before the first."""
        if not self.prompt_tokens_total:
            return None
        return self.cached_tokens_total / self.prompt_tokens_total


class TtftSpread(msgspec.Struct):
    """TTFT by the router's clock, in wall seconds."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


class Totals(msgspec.Struct):
    """Counts since the router's start."""

    requests: int = 0
    errors: int = 0
    retries: int = 0
    moves: int = 0
    splits: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    ttft_s: TtftSpread | None = None


class Fleet(msgspec.Struct):
    """Answer of ``GET /fleet``."""

    policy: str = ""
    replicas: list[Replica] = []
    sessions: int = 0
    totals: Totals = msgspec.field(default_factory=Totals)


class KnownSession(msgspec.Struct):
    """One row of ``GET /sessions``."""

    key: str
    home: str | None = None
    requests: int = 0
    age_s: float = 0.0
    prompt_tokens: int = 0


class _Sessions(msgspec.Struct):
    sessions: list[KnownSession]


class FleetClient:
    """A client of one router's control API."""

    def __init__(self, admin_url: str) -> None:
        self._admin_url = admin_url
        self._client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_CALL_S_MAX))

    async def fleet(self) -> Fleet | None:
        """The fleet, or None if the router did not answer it in time."""
        return await self._get("/fleet", Fleet)

    async def sessions(self, limit: int) -> list[KnownSession]:
        """The newest sessions; nothing if the router did not answer in time."""
        answer = await self._get(f"/sessions?limit={limit}", _Sessions)
        return [] if answer is None else answer.sessions

    async def _get(self, path: str, kind: type[_T]) -> _T | None:
        try:
            async with self._client.get(self._admin_url + path) as response:
                return msgspec.json.decode(await response.read(), type=kind)
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError):
            return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._client.close()

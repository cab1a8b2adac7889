"""What the supervisor asks its engine over HTTP: is it ready, does it move, does it generate."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from replica.supervise.talk.bodies import read_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from replica.engines.base import Launch

_QUICK_S: Final = 2.0
_IDLE_S: Final = 3.0  # SGLang closes a kept connection after 5 s
_CONNECTIONS_MAX: Final = 512
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104
_WORDS_MAX: Final = 300


class ProbeError(Exception):
    """A generation that did not come about; its words say what was answered."""


@dataclass(slots=True, frozen=True)
class Load:
    """An engine's load report: ``stamp`` differs between two reports; counts are requests."""

    stamp: tuple[float, ...]
    running: int
    waiting: int


def host_to_ask(host: str) -> str:
    """Where this machine reaches a server that listens on ``host``."""
    return _WILDCARDS.get(host, host)


def url_of(host: str, port: int) -> str:
    """The URL of a server, IPv6 addresses in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Probe:
    """One engine's HTTP server, as ``opened`` gives it."""

    def __init__(self, session: aiohttp.ClientSession, url: str, model: str) -> None:
        self._session = session
        self._url = url
        self._model = model

    @classmethod
    @asynccontextmanager
    async def opened(cls, launch: Launch, port: int) -> AsyncIterator[Probe]:
        """A probe of the engine that this launch starts, at one of its ports."""
        headers = {} if launch.api_key is None else {"authorization": f"Bearer {launch.api_key}"}
        connector = aiohttp.TCPConnector(keepalive_timeout=_IDLE_S, limit=_CONNECTIONS_MAX)
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            yield cls(session, url_of(host_to_ask(launch.host), port), launch.model)

    async def is_ready(self) -> bool:
        """Whether it says so; False where it does not answer."""
        return await self._status("/ready", _QUICK_S) == HTTPStatus.OK

    async def is_healthy(self, within_s: float) -> bool:
        """Whether it made a token just now. Takes a second and more."""
        return await self._status("/health", within_s) == HTTPStatus.OK

    async def load(self) -> Load | None:
        """Its load report; None where there is none."""
        try:
            status, body = await self._call("GET", "/v1/loads?include=core", None, _QUICK_S)
            rows = body["loads"] if status == HTTPStatus.OK else []
            stamp = tuple(float(row["timestamp"]) for row in rows)
            running = sum(int(row["num_running_reqs"]) for row in rows)
            waiting = sum(int(row["num_waiting_reqs"]) for row in rows)
        except (aiohttp.ClientError, OSError, ValueError, TypeError, KeyError):
            return None
        return Load(stamp, running, waiting) if stamp else None

    async def generate(
        self, prompt: str, *, system: str | None, tokens: int, within_s: float
    ) -> int:
        """Let it answer a chat; the tokens that it made.

        Raises:
            ProbeError: it did not.
        """
        messages = [] if system is None else [{"role": "system", "content": system}]
        body = {
            "model": self._model,
            "messages": [*messages, {"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "temperature": 0.0,
        }
        try:
            status, answer = await self._call("POST", "/v1/chat/completions", body, within_s)
        except TimeoutError:
            raise ProbeError(f"no answer within {within_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as failure:
            raise ProbeError(f"{type(failure).__name__}: {failure}"[:_WORDS_MAX]) from None
        if status != HTTPStatus.OK:
            raise ProbeError(f"status {status}: {answer}"[:_WORDS_MAX])
        try:
            made = int(answer["usage"]["completion_tokens"])
        except (ValueError, TypeError, KeyError):
            made = 0
        if made < 1:
            raise ProbeError(f"an answer without a token: {answer}"[:_WORDS_MAX])
        return made

    async def _status(self, path: str, within_s: float) -> int | None:
        try:
            async with asyncio.timeout(within_s), self._session.get(self._url + path) as answer:
                return answer.status
        except (aiohttp.ClientError, OSError, ValueError):
            return None

    async def _call(self, method: str, path: str, body: object, within_s: float) -> tuple[int, Any]:
        async with (
            asyncio.timeout(within_s),
            self._session.request(method, self._url + path, json=body) as answer,
        ):
            return answer.status, await read_json(answer)

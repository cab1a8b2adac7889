"""A closed-loop load over HTTP: a fixed number of lanes, each playing one session after another.

A session's next request starts its gap after the answer before it ended. Gaps and reported times
are engine seconds, the wall runs ``time_scale`` times faster; time-outs and the pauses before
retries stay in wall seconds, as an agent's do.
"""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import aiohttp

from sim.live.streams import AnswerStream
from sim.live.tally import RequestRecord, Tally, ceiling_tokens

if TYPE_CHECKING:
    from sim.workload.turns import AgentRequest, Answer, Session, Source

RETRIES_MAX: Final = 2
_RETRY_STATUSES: Final = frozenset({429, 502, 503, 504, 529})
_RETRY_PAUSE_S_MAX: Final = 5.0
_CONNECT_S_MAX: Final = 10.0
_SILENCE_S_MAX: Final = 120.0
_ERROR_BYTES_MAX: Final = 300
_HTTP_OK: Final = 200


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a load is played; ``requests_max`` None means until it is cancelled.

    The first ``warmup_requests`` of them are forgotten. ``retry_pause_s`` (wall) is the pause before a first retry that no ``Retry-After`` sets.
    """

    base_url: str
    lanes: int
    time_scale: float = 1.0
    requests_max: int | None = None
    warmup_requests: int = 0
    retry_pause_s: float = 0.5


@dataclass(slots=True)
class _Attempt:
    """One try of a request; ``status`` 0 means that no answer came."""

    status: int = 0
    error: str | None = None
    first_s: float | None = None
    replica: str | None = None
    reason: str | None = None
    retry_after_s: float | None = None
    stream: AnswerStream | None = None

    @property
    def may_repeat(self) -> bool:
        """Whether an agent would send the request again: nothing of an answer was seen."""
        return self.error is not None and (self.status in _RETRY_STATUSES or self.status == 0)


class Load:
    """Plays a source's sessions against a base URL and counts what comes back."""

    def __init__(self, source: Source, options: LoadOptions) -> None:
        assert options.time_scale > 0.0, options.time_scale
        self.tally = Tally()
        self.n_inflight = 0
        self._source = source
        self._options = options
        self._n_started = 0
        self._n_ended = 0

    async def run(self) -> None:
        """Play until ``requests_max`` requests are done or the source is empty; else for ever."""
        loop = asyncio.get_running_loop()
        self._began_s = loop.time()
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_S_MAX, sock_read=_SILENCE_S_MAX
        )
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=3.0)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as client,
            asyncio.TaskGroup() as group,
        ):
            self._playing = group.create_task(self._play_lanes(client), name="lanes")

    async def _play_lanes(self, client: aiohttp.ClientSession) -> None:
        async with asyncio.TaskGroup() as lanes:
            for lane in range(self._options.lanes):
                lanes.create_task(self._play_lane(client, lane), name=f"lane-{lane}")

    def _is_full(self) -> bool:
        limit = self._options.requests_max
        return limit is not None and self._n_started >= limit

    async def _play_lane(self, client: aiohttp.ClientSession, lane: int) -> None:
        while not self._is_full():
            session = self._source.next_session(lane)
            if session is None:
                return
            self.tally.n_sessions += 1
            await self._play(client, session)

    async def _play(self, client: aiohttp.ClientSession, session: Session) -> None:
        """Play a session to its end; a request that fails for good ends it early."""
        while not self._is_full() and (turn := session.next_turn()) is not None:
            await asyncio.sleep(turn.gap_s / self._options.time_scale)
            if turn.children:
                async with asyncio.TaskGroup() as burst:
                    for child in turn.children:
                        burst.create_task(self._play(client, child))
            if self._is_full():
                return
            self._n_started += 1
            answer = await self._ask(client, session.key, turn.request)
            if answer is None:
                return
            session.answered(answer)

    async def _ask(
        self, client: aiohttp.ClientSession, key: str, request: AgentRequest
    ) -> Answer | None:
        """Send a request, repeat it as an agent would, count it; None if it failed for good."""
        now_s = asyncio.get_running_loop().time
        sent_s = now_s()
        n_retries = 0
        self.n_inflight += 1
        try:
            attempt = await self._attempt(client, request)
            while attempt.may_repeat and n_retries < RETRIES_MAX:
                pause_s = attempt.retry_after_s
                if pause_s is None:
                    pause_s = self._options.retry_pause_s * 2.0**n_retries
                await asyncio.sleep(min(pause_s, _RETRY_PAUSE_S_MAX))
                n_retries += 1
                attempt = await self._attempt(client, request)
        finally:
            self.n_inflight -= 1
        scale = self._options.time_scale
        usage = attempt.stream.usage if attempt.stream is not None else None
        self.tally.add(
            RequestRecord(
                session=key,
                path=request.path,
                started_s=(sent_s - self._began_s) * scale,
                duration_s=(now_s() - sent_s) * scale,
                ttft_s=None if attempt.first_s is None else (attempt.first_s - sent_s) * scale,
                status=attempt.status,
                error=attempt.error,
                replica=attempt.replica,
                reason=attempt.reason,
                n_retries=n_retries,
                prompt_tokens=usage.prompt_tokens if usage else None,
                cached_tokens=usage.cached_tokens if usage else None,
                output_tokens=usage.output_tokens if usage else None,
                ceiling_tokens=ceiling_tokens(usage.prompt_tokens, request.shared_ratio)
                if usage
                else None,
            )
        )
        self._n_ended += 1
        if self._n_ended == self._options.warmup_requests:
            self.tally = Tally()
        if self._n_ended == self._options.requests_max:
            self._playing.cancel()  # the lanes that still pause have nothing left to do
        if attempt.error is not None or attempt.stream is None:
            return None
        return attempt.stream.answer()

    async def _attempt(self, client: aiohttp.ClientSession, request: AgentRequest) -> _Attempt:
        attempt = _Attempt()
        try:
            async with client.post(
                self._options.base_url + request.path,
                data=io.BytesIO(request.body),  # bytes over 1 MiB are warned of
                headers=request.headers,
                skip_auto_headers=("user-agent",),
            ) as response:
                attempt.status = response.status
                attempt.replica = response.headers.get("x-homeport-replica")
                attempt.reason = response.headers.get("x-homeport-reason")
                attempt.retry_after_s = _seconds(response.headers.get("retry-after"))
                if response.status == _HTTP_OK:
                    await _read_stream(response, request.path, attempt)
                else:
                    text = await response.content.read(_ERROR_BYTES_MAX)
                    attempt.error = text.decode(errors="replace") or response.reason or "no text"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            attempt.error = f"{type(error).__name__}: {error}"
        return attempt


async def _read_stream(response: aiohttp.ClientResponse, path: str, attempt: _Attempt) -> None:
    stream = attempt.stream = AnswerStream(path)
    now_s = asyncio.get_running_loop().time
    async for data in response.content.iter_any():
        stream.feed(data)
        if attempt.first_s is None and stream.has_begun:
            attempt.first_s = now_s()
    if stream.error is not None:
        attempt.error = stream.error
    elif not stream.is_ended:
        attempt.error = "the stream ended without its last event"


def _seconds(text: str | None) -> float | None:
    """A ``Retry-After`` in seconds; a date or anything else counts as absent."""
    try:
        value_s = float(text or "")
    except ValueError:
        return None
    return value_s if 0.0 <= value_s < float("inf") else None

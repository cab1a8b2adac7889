"""The generating endpoints: body -> engine request -> events as the engine's tokens come."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiohttp import web

from sim.engine.requests import EngineRequest, PromptTooLong, QueueFull
from sim.live.rendering import pages, template
from sim.live.rendering.answer import Answer, Cursor, Piece, Wish, compose
from sim.live.rendering.bodies import BadBodyError
from sim.live.serving.faults import FaultKind, FaultPlan, break_connection
from sim.live.serving.wire import Refusal, Usage, Writer

if TYPE_CHECKING:
    from sim.live.serving.dialects import Call, Dialect
    from sim.live.serving.faults import Fault
    from sim.live.serving.options import EmulatorOptions
    from sim.live.serving.pacer import Generation, Pacer

JSON: Final = "application/json"
_EVENT_STREAM: Final = {"Content-Type": "text/event-stream; charset=utf-8"}
_BAD_REQUEST: Final = 400
FAULT_TEXT: Final = "planned fault"


@dataclass(slots=True)
class _Job:
    """One accepted request."""

    generation: Generation
    answer: Answer
    prompt_bytes: int
    writer: Writer

    def usage(self) -> Usage:
        """The token counts as they stand."""
        return Usage(
            prompt_tokens=self.generation.prompt_tokens,
            output_tokens=self.generation.n_tokens,
            cached_tokens=self.generation.cached_tokens,
        )

    @property
    def finish(self) -> str:
        """Why it ended, in the chat API's words."""
        return "abort" if self.generation.is_aborted else self.answer.finish


class Generator:
    """Serves generations of both dialects for one replica."""

    def __init__(self, options: EmulatorOptions, pacer: Pacer, faults: FaultPlan) -> None:
        self._options = options
        self._pacer = pacer
        self._faults = faults
        self._n_active = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def until_idle(self) -> None:
        """Wait until no request is being served."""
        await self._idle.wait()

    async def serve(self, request: web.Request, dialect: Dialect) -> web.StreamResponse:
        """Serve one request; a client that leaves ends its generation at once."""
        self._n_active += 1
        self._idle.clear()
        try:
            return await self._serve(request, dialect)
        finally:
            self._n_active -= 1
            if not self._n_active:
                self._idle.set()

    async def _serve(self, request: web.Request, dialect: Dialect) -> web.StreamResponse:
        body = await request.read()
        fault = self._faults.take()
        if fault is not None and fault.kind is FaultKind.STATUS:
            return _refused(Refusal(fault.status, dialect.error_body(fault.status, FAULT_TEXT)))
        try:
            require_json(request)
            call = dialect.read(body, self._options.template)
        except BadBodyError as error:
            return _refused(Refusal(_BAD_REQUEST, dialect.error_body(_BAD_REQUEST, str(error))))
        try:
            job = self._accept(call, dialect)
        except (BadBodyError, PromptTooLong) as error:
            return _refused(Refusal(_BAD_REQUEST, dialect.error_body(_BAD_REQUEST, str(error))))
        except QueueFull:
            return _refused(dialect.queue_full(is_stream=call.is_stream))
        try:
            if call.is_stream:
                return await _stream(request, job, fault)
            return await _whole(request, job, fault, dialect)
        finally:
            self._pacer.cancel(job.generation.rid)

    def _accept(self, call: Call, dialect: Dialect) -> _Job:
        rid = call.rid or secrets.token_hex(16)
        if self._pacer.is_live(rid):
            raise BadBodyError(f"Duplicate request ID detected: {rid}")
        text = template.render(call.prompt)
        seed = pages.seed_of(call.cache_salt)
        page_ids = pages.page_ids(text, seed)
        prompt_tokens = pages.prompt_tokens(text)
        answer = compose(
            self._wish(call, prompt_tokens),
            prompt_bytes=len(text),
            seed=pages.text_digest(text, page_ids, seed),
            is_thinking=call.prompt.is_thinking,
        )
        generation = self._pacer.submit(
            EngineRequest(
                rid,
                prompt_tokens,
                answer.n_tokens,
                page_ids,
                pages.output_page_ids(text, page_ids, answer.raw, seed),
            )
        )
        return _Job(generation, answer, len(text), dialect.writer(call, rid, answer.call))

    def _wish(self, call: Call, prompt_tokens: int) -> Wish:
        room_tokens = self._options.facts.context_tokens_max - prompt_tokens
        if room_tokens < 1:
            raise BadBodyError(
                f"The input ({prompt_tokens} tokens) is longer than the model's context length "
                f"({self._options.facts.context_tokens_max} tokens)."
            )
        limit = call.tokens_max
        if limit is not None and not 1 <= limit <= room_tokens:
            raise BadBodyError(
                f"max_tokens is {limit}, but the prompt has {prompt_tokens} tokens of a context "
                f"of {self._options.facts.context_tokens_max}: ask for 1 to {room_tokens}."
            )
        wanted = call.emulate.output_tokens
        return Wish(
            output_tokens=self._options.output_tokens if wanted is None else wanted,
            tokens_max=room_tokens if limit is None else limit,
            tool_call=call.emulate.tool_call,
            call_index=sum(len(message.tool_calls or ()) for message in call.prompt.messages),
        )


def require_json(request: web.Request) -> None:
    """Refuse any other content type.

    Raises:
        BadBodyError: the content type is not application/json.
    """
    if request.content_type != JSON:
        raise BadBodyError(f"Content-Type must be {JSON}, got {request.content_type!r}")


def _refused(refusal: Refusal | list[bytes]) -> web.Response:
    if isinstance(refusal, Refusal):
        return web.Response(status=refusal.status, body=refusal.body, content_type=JSON)
    return web.Response(body=b"".join(refusal), headers=_EVENT_STREAM)


async def _stream(request: web.Request, job: _Job, fault: Fault | None) -> web.StreamResponse:
    """Send the events; the head goes out with the first of them."""
    response = web.StreamResponse(headers=_EVENT_STREAM)
    cursor = Cursor(job.answer, prompt_bytes=job.prompt_bytes)
    n_tokens = -1
    n_events = 0
    while job.generation.ended is None or n_tokens < 0:
        await job.generation.changed()
        usage = job.usage()
        events = job.writer.opening(usage) if n_tokens < 0 else []
        n_tokens = usage.output_tokens
        events += job.writer.piece(cursor.upto(n_tokens), usage)
        if job.generation.ended is not None:
            events += job.writer.closing(job.finish, usage)
        if fault is not None and n_events + len(events) >= fault.after_events:
            events = events[: fault.after_events - n_events]
            if fault.kind is FaultKind.ERROR_EVENT:
                events += job.writer.fault(fault.status, FAULT_TEXT)
            await _send(request, response, events)
            if fault.kind is FaultKind.ERROR_EVENT:
                break
            await break_connection(fault.kind, request)
        await _send(request, response, events)
        n_events += len(events)
    await response.write_eof()
    return response


async def _send(request: web.Request, response: web.StreamResponse, events: list[bytes]) -> None:
    if events:
        if not response.prepared:
            await response.prepare(request)
        await response.write(b"".join(events))


async def _whole(
    request: web.Request, job: _Job, fault: Fault | None, dialect: Dialect
) -> web.StreamResponse:
    if fault is not None:
        if fault.kind is FaultKind.ERROR_EVENT:
            return _refused(Refusal(fault.status, dialect.error_body(fault.status, FAULT_TEXT)))
        await break_connection(fault.kind, request)
    while job.generation.ended is None:
        await job.generation.changed()
    usage = job.usage()
    visible: Piece = Cursor(job.answer, prompt_bytes=job.prompt_bytes).upto(usage.output_tokens)
    text = job.writer.whole(job.answer, visible, job.finish, usage)
    return web.Response(body=text, content_type=JSON)

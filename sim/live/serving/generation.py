"""The generating endpoints: body -> engine request -> events as the engine's tokens come."""

from __future__ import annotations

import asyncio
import math
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import web

from sim.engine.requests import EngineError, EngineRequest, QueueFull
from sim.live.rendering import pages, template
from sim.live.rendering.answer import Cursor, Wish, compose
from sim.live.rendering.bodies import BadBodyError, UnreadableBodyError
from sim.live.rendering.tool_loop import next_call
from sim.live.serving.faults import FaultKind, FaultPlan, break_connection
from sim.live.serving.jobs import Job
from sim.live.serving.wire import (
    BAD_REQUEST,
    QUEUE_FULL_TEXT,
    UNAVAILABLE,
    Problem,
    Refusal,
    encode,
)

if TYPE_CHECKING:
    from sim.live.rendering.bodies import ToolCallAsk
    from sim.live.serving.dialects import Call, Dialect
    from sim.live.serving.faults import Fault
    from sim.live.serving.options import EmulatorOptions
    from sim.live.serving.pacer import Pacer
    from sim.live.serving.wire import BatchWriter

JSON: Final = "application/json"
_EVENT_STREAM: Final = {"Content-Type": "text/event-stream; charset=utf-8"}
FAULT_TEXT: Final = "planned fault"


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
        """Wait until no request is being served, nor runs on for a client that has left."""
        await self._idle.wait()
        await self._pacer.until_idle()

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
            texts = call.texts or (template.render(call.prompt),)
        except BadBodyError as error:
            return _refused(dialect.unreadable(error))
        jobs: list[Job] = []
        try:
            try:
                for each, text in zip(_calls(call), texts, strict=True):
                    jobs.append(self._accept(each, text, dialect))
            except (BadBodyError, EngineError) as error:
                return _refused(dialect.refusal(_problem_of(error), call))
            if call.detach is not None:
                return web.Response(body=call.detach(jobs.pop()), content_type=JSON)
            return await _answered(request, call, jobs, fault, dialect)
        finally:
            # Only a stream that has its head is followed closely enough to see its client leave.
            for job in jobs:
                if job.has_head:
                    self._pacer.cancel(job.generation.rid)
                else:
                    self._pacer.abandon(job.generation, poll_s=self._options.disconnect_poll_s)

    def _accept(self, call: Call, text: bytes, dialect: Dialect) -> Job:
        """Hand a call, whose prompt is rendered as ``text``, to the engine.

        Raises:
            BadBodyError: it asks for what cannot be generated.
            EngineError: the scheduler refuses it.
        """
        rid = call.rid or secrets.token_hex(16)
        if self._pacer.is_live(rid):
            raise BadBodyError(f"Duplicate request ID detected: {rid}")
        name, _, adapter = call.model.partition(":")
        if adapter and call.model != self._options.model:
            raise BadBodyError(
                f"LoRA adapter {adapter!r} of {name!r} was requested, but LoRA is not enabled."
            )
        seed = pages.seed_of(call.cache_salt)
        if self._options.has_kv_events:
            page_ids = pages.published_ids(text, call.cache_salt)
        else:
            page_ids = pages.page_ids(text, seed)
        prompt_tokens = pages.prompt_tokens(text)
        answer = compose(
            self._wish(call, prompt_tokens),
            prompt_bytes=len(text),
            seed=pages.text_digest(text, page_ids, seed),
            is_thinking=call.prompt.is_thinking,
        )
        if self._options.has_kv_events:
            output_ids = pages.published_ids(text + answer.raw, call.cache_salt)[len(page_ids) :]
        else:
            output_ids = pages.output_page_ids(text, page_ids, answer.raw, seed)
        generation = self._pacer.submit(
            EngineRequest(
                rid,
                prompt_tokens,
                answer.n_tokens,
                page_ids,
                output_ids,
            ),
            is_stream=call.is_stream,
        )
        return Job(
            generation,
            answer,
            Cursor(answer, prompt_bytes=len(text)),
            dialect.writer(call, rid, answer.call),
            has_late_head=dialect.has_late_head,
        )

    def _wish(self, call: Call, prompt_tokens: int) -> Wish:
        """What the answer is to be.

        Raises:
            BadBodyError: a parameter is out of its range, or the context too small.
        """
        temperature = call.temperature
        if temperature is not None and not 0.0 <= temperature < math.inf:
            raise BadBodyError(
                f"temperature must be a non-negative finite number, got {temperature}."
            )
        facts = self._options.facts
        room_tokens = facts.context_tokens_max - prompt_tokens
        if room_tokens < 1:
            raise BadBodyError(
                f"The input ({prompt_tokens} tokens) is longer than the model's context length "
                f"({facts.context_tokens_max} tokens)."
            )
        limit = call.tokens_max
        if limit is not None and limit < 0:
            raise BadBodyError(f"max_new_tokens must be at least 0, got {limit}.")
        if limit is not None and limit > room_tokens:
            raise BadBodyError(
                "Requested token count exceeds the model's maximum context length of "
                f"{facts.context_tokens_max} tokens: max_tokens is {limit}, the prompt has "
                f"{prompt_tokens}. Ask for {room_tokens} at most."
            )
        # The pool cuts an answer short without a word, as the engine's scheduler does.
        pool_tokens = max(1, facts.capacity_tokens - prompt_tokens)
        asked = call.emulate
        wanted = asked.output_tokens if asked is not None else None
        output_tokens = self._options.output_tokens if wanted is None else wanted
        tokens_max = max(1, min(room_tokens if limit is None else limit, pool_tokens))
        shown_tokens = tokens_max if call.ignores_eos else min(output_tokens, tokens_max)
        usual_tokens = int(shown_tokens * self._options.reasoning_ratio)
        return Wish(
            output_tokens=output_tokens,
            tokens_max=tokens_max,
            reasoning_tokens=usual_tokens if asked is None else asked.reasoning_tokens,
            is_endless=call.ignores_eos,
            tool_call=self._tool_call(call),
            call_index=sum(len(message.tool_calls or ()) for message in call.prompt.messages),
        )

    def _tool_call(self, call: Call) -> ToolCallAsk | None:
        """The call that the client wants the answer to make, else the next of an agent's loop."""
        if call.emulate is not None:
            return call.emulate.tool_call
        turns = self._options.tool_turns
        return next_call(call.prompt, turns) if turns else None


def _calls(call: Call) -> list[Call]:
    """The calls of a batch, each with an id of its own, or the one there is."""
    if not call.is_batch:
        return [call]
    return [
        replace(call, index=index, rid=call.rid and f"{call.rid}_{index}")
        for index in range(len(call.texts))
    ]


async def _batch(request: web.Request, jobs: list[Job], *, is_stream: bool) -> web.StreamResponse:
    """All answers of a batch: one document, or their events as each is whole."""
    writer = cast("BatchWriter", jobs[0].writer)
    if not is_stream:
        parts = []
        for job in jobs:
            while job.generation.ended is None:
                await job.generation.changed()
            parts.append(_part(job))
        usages = [job.usage() for job in jobs]
        text = encode(writer.joined(parts, usages))
        return web.Response(body=text, content_type=JSON)
    response = web.StreamResponse(headers=_EVENT_STREAM)
    for job in jobs:
        job.has_head = True
    await response.prepare(request)
    for job in jobs:
        while job.generation.ended is None:
            await job.generation.changed()
        usage = job.usage()
        events = job.writer.piece(job.cursor.upto(usage.output_tokens), usage)
        await response.write(b"".join(events + job.writer.closing(job.finish, usage)))
    await response.write(b"".join(writer.end([job.usage() for job in jobs])))
    await response.write_eof()
    return response


def _part(job: Job) -> dict[str, Any]:
    usage = job.usage()
    visible = job.cursor.upto(usage.output_tokens)
    return cast("BatchWriter", job.writer).part(job.answer, visible, job.finish, usage)


def _problem_of(error: BadBodyError | EngineError) -> Problem:
    if isinstance(error, QueueFull):
        return Problem(UNAVAILABLE, QUEUE_FULL_TEXT, is_late=True)
    return Problem(BAD_REQUEST, str(error), is_late=isinstance(error, EngineError))


def require_json(request: web.Request) -> None:
    """Refuse any other content type.

    Raises:
        UnreadableBodyError: the content type is not application/json.
    """
    if request.content_type != JSON:
        raise UnreadableBodyError(f"Content-Type must be {JSON}, got {request.content_type!r}")


def _refused(refusal: Refusal | list[bytes]) -> web.Response:
    if isinstance(refusal, Refusal):
        return web.Response(status=refusal.status, body=refusal.body, content_type=JSON)
    return web.Response(body=b"".join(refusal), headers=_EVENT_STREAM)


async def _answered(
    request: web.Request, call: Call, jobs: list[Job], fault: Fault | None, dialect: Dialect
) -> web.StreamResponse:
    """Answer as the call wants it, all at once or as it comes."""
    if call.is_batch:
        return await _batch(request, jobs, is_stream=call.is_stream)
    if call.is_stream:
        return await _stream(request, jobs[0], fault)
    return await _whole(request, jobs[0], fault, dialect)


async def _stream(request: web.Request, job: Job, fault: Fault | None) -> web.StreamResponse:
    """Send the events; the head goes out before them or with the first."""
    response = web.StreamResponse(headers=_EVENT_STREAM)
    if not job.has_late_head:
        await _prepare(request, response, job)
        await _send(request, response, job, job.writer.greeting())
    n_tokens = -1
    n_events = 0
    while job.generation.ended is None or n_tokens < 0:
        await job.generation.changed()
        usage = job.usage()
        events = job.writer.opening(usage) if n_tokens < 0 else []
        n_tokens = usage.output_tokens
        events += job.writer.piece(job.cursor.upto(n_tokens), usage)
        if job.generation.ended is not None:
            events += job.writer.closing(job.finish, usage)
        if fault is not None and n_events + len(events) >= fault.after_events:
            events = events[: fault.after_events - n_events]
            if fault.kind is FaultKind.ERROR_EVENT:
                events += job.writer.fault(fault.status, FAULT_TEXT)
            await _send(request, response, job, events)
            if fault.kind is FaultKind.ERROR_EVENT:
                break
            await break_connection(fault.kind, request)
        await _send(request, response, job, events)
        n_events += len(events)
    await response.write_eof()
    return response


async def _send(
    request: web.Request, response: web.StreamResponse, job: Job, events: list[bytes]
) -> None:
    if events:
        if not job.has_head:
            await _prepare(request, response, job)
        await response.write(b"".join(events))


async def _prepare(request: web.Request, response: web.StreamResponse, job: Job) -> None:
    job.has_head = True
    await response.prepare(request)


async def _whole(
    request: web.Request, job: Job, fault: Fault | None, dialect: Dialect
) -> web.StreamResponse:
    if fault is not None:
        if fault.kind is FaultKind.ERROR_EVENT:
            return _refused(Refusal(fault.status, dialect.error_body(fault.status, FAULT_TEXT)))
        await break_connection(fault.kind, request)
    while job.generation.ended is None:
        await job.generation.changed()
    usage = job.usage()
    visible = job.cursor.upto(usage.output_tokens)
    text = job.writer.whole(job.answer, visible, job.finish, usage)
    return web.Response(body=text, content_type=JSON)

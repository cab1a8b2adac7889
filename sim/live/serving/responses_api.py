"""``/v1/responses`` as SGLang 0.5.23 serves it: responses are made, kept, shown and cancelled."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import web

from sim.live.rendering.bodies import BadBodyError, UnreadableBodyError, cache_key, decode
from sim.live.rendering.responses_bodies import ResponsesBody, responses_prompt
from sim.live.serving import chat_wire
from sim.live.serving.answers import answer
from sim.live.serving.dialects import Call
from sim.live.serving.responses_wire import (
    Item,
    ResponsesWriter,
    error_of,
    refusal_text,
)
from sim.live.serving.wire import BAD_REQUEST, Refusal, encode

if TYPE_CHECKING:
    from sim.live.rendering.answer import CallSpan
    from sim.live.rendering.bodies import TemplateDefaults
    from sim.live.serving.generation import Generator
    from sim.live.serving.jobs import Job
    from sim.live.serving.options import EmulatorOptions
    from sim.live.serving.pacer import Pacer
    from sim.live.serving.wire import Problem, Writer

_KEPT_MAX: Final = 10_000
_ID_BEGINS: Final = "resp_"
_LEFT_ALONE_TOKENS: Final = 2
"""SGLang keeps so many of the output tokens that are allowed for itself."""

_DISABLED: Final = (
    "Response store is disabled. Stateful Responses require --enable-response-store on a standalone "
    "server; response storage is unavailable in PD mode."
)


class RefusedResponseError(BadBodyError):
    """A request for a response that is refused; ``param`` is the member at fault."""

    def __init__(
        self, message: str, *, param: str | None = None, status: int = BAD_REQUEST
    ) -> None:
        super().__init__(message)
        self.param = param
        self.status = status

    def body(self) -> Item:
        """The error object."""
        return error_of(self.status, str(self), param=self.param)


@dataclass(slots=True)
class Kept:
    """A response as it stands, and the items that one which goes on from it begins with.

    ``job`` is what still computes it.
    """

    document: Item
    items: list[Item]
    writer: ResponsesWriter
    job: Job | None = None

    def settle(self) -> None:
        """See how far a job that nobody waits for has come."""
        job = self.job
        if job is None:
            return
        if job.generation.ended is None:
            self.document["status"] = "queued" if job.generation.began is None else "in_progress"
            return
        usage = job.usage()
        visible = job.cursor.upto(usage.output_tokens)
        final = self.writer.finished(job.answer, visible, job.finish, usage)
        if self.document["status"] != "cancelled":
            self.finish(final)
        self.job = None

    def finish(self, final: Item) -> None:
        """The response is final."""
        self.document = final
        self.items = [*self.items, *[_without_nulls(item) for item in final["output"]]]


class ResponseStore:
    """The responses that one replica keeps; the oldest go first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def put(self, kept: Kept) -> None:
        """Keep a response."""
        self._kept[kept.document["id"]] = kept
        if len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)

    def get(self, response_id: str) -> Kept:
        """A response that is kept.

        Raises:
            RefusedResponseError: there is none of this id.
        """
        if not response_id.startswith(_ID_BEGINS):
            raise RefusedResponseError(
                f"Invalid 'response_id': '{response_id}'. Expected an ID that begins with 'resp'.",
                param="response_id",
            )
        kept = self._kept.get(response_id)
        if kept is None:
            raise RefusedResponseError(
                f"Response with id '{response_id}' not found.",
                param="response_id",
                status=HTTPStatus.NOT_FOUND,
            )
        kept.settle()
        return kept


@dataclass(slots=True, kw_only=True)
class ResponsesCall(Call):
    """What a body asks for, and the items before and in it."""

    body: ResponsesBody
    items: list[Item]


class ResponsesDialect:
    """``/v1/responses``."""

    has_late_head = False

    def __init__(self, options: EmulatorOptions, store: ResponseStore) -> None:
        self._options = options
        self._store = store

    def read(self, body: bytes, defaults: TemplateDefaults) -> Call:
        """Read a body."""
        read = decode(body, ResponsesBody)
        self._check(read)
        history: list[Item] = []
        if read.previous_response_id is not None:
            history = self._store.get(read.previous_response_id).items
        limit = read.max_output_tokens
        rid = read.request_id or f"resp_{secrets.token_hex(16)}"
        call = ResponsesCall(
            responses_prompt(read, defaults, history),
            model=(read.model or self._options.model).partition(":")[0],
            is_stream=bool(read.stream),
            tokens_max=None if limit is None else limit - _LEFT_ALONE_TOKENS,
            temperature=read.temperature,
            rid=rid,
            cache_salt=cache_key(read),
            emulate=read.homeport_emulate,
            body=read,
            items=[*history, *read.items],
        )
        if read.background and not read.stream:
            call.detach = lambda job: self._detached(call, job)
        return call

    def writer(self, call: Call, rid: str, span: CallSpan | None) -> Writer:
        """The writer of a response."""
        return self._writer(_of(call), rid, span)

    def error_body(self, status: int, message: str) -> bytes:
        """The error wrapped in an object."""
        return encode(error_of(status, message, kind=HTTPStatus(status).phrase))

    def unreadable(self, error: BadBodyError) -> Refusal:
        """The error object; its type tells whether it was JSON of the right shape at least."""
        if isinstance(error, RefusedResponseError):
            return Refusal(error.status, encode(error.body()))
        if isinstance(error, UnreadableBodyError):
            body = error_of(BAD_REQUEST, str(error), kind=chat_wire.UNREADABLE)
            return Refusal(BAD_REQUEST, encode(body))
        return Refusal(BAD_REQUEST, encode(error_of(BAD_REQUEST, str(error))))

    def refusal(self, problem: Problem, call: Call) -> Refusal | list[bytes]:
        """A stream begins a response that fails; all else is a bad request."""
        if not call.is_stream:
            text = refusal_text(problem.status, problem.message)
            return Refusal(BAD_REQUEST, encode(error_of(BAD_REQUEST, text)))
        writer = self._writer(_of(call), call.rid or "", None)
        return [*writer.greeting(), *writer.fault(problem.status, problem.message)]

    def _check(self, body: ResponsesBody) -> None:
        """Refuse what SGLang refuses before it renders, in its order."""
        if not self._options.has_response_store:
            for name in ("previous_response_id", "background"):
                if getattr(body, name):
                    raise RefusedResponseError(_DISABLED, param=name)
        if body.background and not body.store:
            raise RefusedResponseError("background=true requires store=true.", param="store")
        if body.model is not None and body.model.partition(":")[0] != self._options.model:
            raise RefusedResponseError(
                f"The model '{body.model}' does not exist",
                param="model",
                status=HTTPStatus.NOT_FOUND,
            )
        choice = body.effective_choice
        if body.tool_choice == "required" and not body.has_calls:
            raise RefusedResponseError(
                'tool_choice="required" requires at least one tool with type="function" or '
                'type="custom"; other built-in tool types cannot be forced.'
            )
        if isinstance(choice, dict) and choice["name"] not in [
            tool.name for tool in body.tools if tool.type in ("function", "custom")
        ]:
            raise RefusedResponseError(
                f"Tool {choice['name']!r} is not declared in tools", param="tool_choice"
            )

    def _writer(self, call: ResponsesCall, rid: str, span: CallSpan | None) -> ResponsesWriter:
        def keep(final: Item) -> None:
            if self._options.has_response_store and call.body.store:
                kept = Kept(final, call.items, writer)
                kept.finish(final)
                self._store.put(kept)

        writer = ResponsesWriter(
            rid, call.body, model=call.body.model or self._options.model, call=span, keep=keep
        )
        return writer

    def _detached(self, call: ResponsesCall, job: Job) -> bytes:
        """Let a generation run on by itself; its client asks for it later."""
        writer = job.writer
        assert isinstance(writer, ResponsesWriter)
        queued = writer.document("queued")
        self._store.put(Kept(dict(queued), call.items, writer, job))
        return encode(queued)


class ResponsesApi:
    """The routes of one replica."""

    def __init__(self, options: EmulatorOptions, pacer: Pacer, generator: Generator) -> None:
        self._options = options
        self._pacer = pacer
        self._generator = generator
        self._store = ResponseStore()
        self._dialect = ResponsesDialect(options, self._store)

    def routes(self) -> list[web.RouteDef]:
        """The routes that this class answers."""
        return [
            web.post("/v1/responses", self._create),
            web.get("/v1/responses/{id}", self._show, allow_head=False),
            web.post("/v1/responses/{id}/cancel", self._cancel),
        ]

    async def _create(self, request: web.Request) -> web.StreamResponse:
        return await self._generator.serve(request, self._dialect)

    async def _show(self, request: web.Request) -> web.Response:
        try:
            return answer(self._found(request).document)
        except RefusedResponseError as error:
            return answer(error.body(), status=error.status)

    async def _cancel(self, request: web.Request) -> web.Response:
        try:
            kept = self._found(request)
        except RefusedResponseError as error:
            return answer(error.body(), status=error.status)
        if kept.job is not None:
            kept.document["status"] = "cancelled"
            self._pacer.cancel(kept.job.generation.rid)
        return answer(kept.document)

    def _found(self, request: web.Request) -> Kept:
        if not self._options.has_response_store:
            raise RefusedResponseError(_DISABLED, param="response_id")
        return self._store.get(request.match_info["id"])


def _of(call: Call) -> ResponsesCall:
    assert isinstance(call, ResponsesCall)
    return call


def _without_nulls(item: Item) -> Item:
    return {key: value for key, value in item.items() if value is not None}

"""The two API dialects: request body -> call, and how each of them refuses.

A body that cannot be read is refused with a status by both. What is found later, a prompt that is
too long or a queue that is full, is an event of a stream that has status 200: always of a message,
and of a chat completion if the scheduler found it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sim.live.rendering.anthropic_bodies import MessagesBody, messages_prompt
from sim.live.rendering.bodies import (
    ChatBody,
    UnreadableBodyError,
    cache_key,
    chat_prompt,
    decode,
)
from sim.live.serving import chat_wire, messages_wire
from sim.live.serving.chat_wire import ChatWriter
from sim.live.serving.messages_wire import MessagesWriter
from sim.live.serving.wire import BAD_REQUEST, Refusal, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.live.rendering.answer import CallSpan
    from sim.live.rendering.bodies import (
        BadBodyError,
        EmulateAsk,
        Prompt,
        StreamOptions,
        TemplateDefaults,
    )
    from sim.live.serving.jobs import Job
    from sim.live.serving.wire import Problem, Writer


@dataclass(slots=True)
class Call:
    """What a body asks for, whatever its dialect."""

    prompt: Prompt
    model: str
    is_stream: bool
    tokens_max: int | None
    ignores_eos: bool = False
    temperature: float | None = None
    rid: str | None = None
    cache_salt: str | None = None
    stream_options: StreamOptions | None = None
    emulate: EmulateAsk | None = None
    detach: Callable[[Job], bytes] | None = None
    """Takes over what runs on without its client, and answers what the client gets at once."""


class Dialect(Protocol):
    """One API's bodies and answers.

    The head of a stream goes out at once, or ``has_late_head``: with the first event.
    """

    has_late_head: bool

    def read(self, body: bytes, defaults: TemplateDefaults) -> Call:
        """Read a request body.

        Raises:
            BadBodyError: it cannot be served.
        """

    def writer(self, call: Call, rid: str, span: CallSpan | None) -> Writer:
        """The writer of this call's answer."""

    def error_body(self, status: int, message: str) -> bytes:
        """An error as this API's JSON body."""

    def unreadable(self, error: BadBodyError) -> Refusal:
        """The answer to a body that :meth:`read` did not take."""

    def refusal(self, problem: Problem, call: Call) -> Refusal | list[bytes]:
        """The answer to a call that is not served, or the events of a stream that has status 200."""


class ChatDialect:
    """``/v1/chat/completions``."""

    has_late_head = True

    def read(self, body: bytes, defaults: TemplateDefaults) -> Call:
        """Read a chat body."""
        read = decode(body, ChatBody)
        limit = (
            read.max_tokens if read.max_completion_tokens is None else read.max_completion_tokens
        )
        return Call(
            chat_prompt(read, defaults),
            model=read.model,
            is_stream=bool(read.stream),
            tokens_max=limit,
            ignores_eos=bool(read.ignore_eos),
            temperature=read.temperature,
            rid=read.rid,
            cache_salt=cache_key(read),
            stream_options=read.stream_options,
            emulate=read.homeport_emulate,
        )

    def writer(self, call: Call, rid: str, span: CallSpan | None) -> Writer:
        """The writer of a chat completion."""
        return ChatWriter(rid, call.model, call=span, stream_options=call.stream_options)

    def error_body(self, status: int, message: str) -> bytes:
        """The error object itself."""
        return encode(chat_wire.error_of(status, message))

    def unreadable(self, error: BadBodyError) -> Refusal:
        """The error object; its type tells whether it was JSON of the right shape at least."""
        kind = chat_wire.UNREADABLE if isinstance(error, UnreadableBodyError) else chat_wire.REFUSED
        return Refusal(BAD_REQUEST, encode(chat_wire.error_of(BAD_REQUEST, str(error), kind)))

    def refusal(self, problem: Problem, call: Call) -> Refusal | list[bytes]:
        """Streams get status 200 and an error event for what the scheduler finds."""
        status, message = problem.status, problem.message
        if call.is_stream and problem.is_late:
            return chat_wire.error_events(status, message)
        kind = chat_wire.REFUSED if status == BAD_REQUEST else str(status)
        return Refusal(status, encode(chat_wire.error_of(status, message, kind)))


class MessagesDialect:
    """``/v1/messages``."""

    has_late_head = False

    def read(self, body: bytes, defaults: TemplateDefaults) -> Call:
        """Read an Anthropic body."""
        read = decode(body, MessagesBody)
        if not read.model:
            raise UnreadableBodyError("model: Field required")
        if read.max_tokens is None or read.max_tokens < 1:
            why = "Field required" if read.max_tokens is None else "must be positive"
            raise UnreadableBodyError(f"max_tokens: {why}")
        return Call(
            messages_prompt(read, defaults),
            model=read.model,
            is_stream=bool(read.stream),
            tokens_max=read.max_tokens,
            temperature=read.temperature,
            emulate=read.homeport_emulate,
        )

    def writer(self, call: Call, rid: str, span: CallSpan | None) -> Writer:
        """The writer of a message."""
        del rid
        return MessagesWriter(call.model, call=span)

    def error_body(self, status: int, message: str) -> bytes:
        """The error wrapped in a typed object."""
        return encode(messages_wire.error_of(status, message))

    def unreadable(self, error: BadBodyError) -> Refusal:
        """The error object."""
        return Refusal(BAD_REQUEST, self.error_body(BAD_REQUEST, str(error)))

    def refusal(self, problem: Problem, call: Call) -> Refusal | list[bytes]:
        """A stream starts a message to tell the error in it."""
        if call.is_stream:
            return MessagesWriter(call.model, call=None).fault(problem.status, problem.message)
        return Refusal(problem.status, encode(messages_wire.refusal_of(problem)))

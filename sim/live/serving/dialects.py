"""The two API dialects: request body -> call, and how each of them refuses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from sim.live.rendering.anthropic_bodies import MessagesBody, messages_prompt
from sim.live.rendering.bodies import ChatBody, EmulateAsk, chat_prompt, decode
from sim.live.serving import chat_wire, messages_wire
from sim.live.serving.chat_wire import ChatWriter
from sim.live.serving.messages_wire import MessagesWriter
from sim.live.serving.wire import QUEUE_FULL_TEXT, Refusal, data_event, encode

if TYPE_CHECKING:
    from sim.live.rendering.answer import CallSpan
    from sim.live.rendering.bodies import Prompt, StreamOptions, TemplateDefaults
    from sim.live.serving.wire import Writer

_UNAVAILABLE: Final = 503


@dataclass(slots=True)
class Call:
    """What a body asks for, whatever its dialect."""

    prompt: Prompt
    model: str
    is_stream: bool
    tokens_max: int | None
    rid: str | None = None
    cache_salt: str | None = None
    stream_options: StreamOptions | None = None
    emulate: EmulateAsk = field(default_factory=EmulateAsk)


class Dialect(Protocol):
    """One API's bodies and answers."""

    def read(self, body: bytes, defaults: TemplateDefaults) -> Call:
        """Read a request body.

        Raises:
            BadBodyError: it cannot be served.
        """

    def writer(self, call: Call, rid: str, span: CallSpan | None) -> Writer:
        """The writer of this call's answer."""

    def error_body(self, status: int, message: str) -> bytes:
        """An error as this API's JSON body."""

    def queue_full(self, *, is_stream: bool) -> Refusal | list[bytes]:
        """A refusal, or the events of a stream that has status 200 all the same."""


class ChatDialect:
    """``/v1/chat/completions``."""

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
            rid=read.rid,
            cache_salt=read.cache_salt,
            stream_options=read.stream_options,
            emulate=read.homeport_emulate or EmulateAsk(),
        )

    def writer(self, call: Call, rid: str, span: CallSpan | None) -> Writer:
        """The writer of a chat completion."""
        return ChatWriter(rid, call.model, call=span, stream_options=call.stream_options)

    def error_body(self, status: int, message: str) -> bytes:
        """The error object itself."""
        return encode(chat_wire.error_of(status, message))

    def queue_full(self, *, is_stream: bool) -> Refusal | list[bytes]:
        """Streams get status 200 and an error event."""
        if not is_stream:
            return Refusal(_UNAVAILABLE, chat_wire.queue_full_body())
        error = chat_wire.error_of(_UNAVAILABLE, QUEUE_FULL_TEXT)
        return [data_event({"error": error}), chat_wire.DONE]


class MessagesDialect:
    """``/v1/messages``."""

    def read(self, body: bytes, defaults: TemplateDefaults) -> Call:
        """Read an Anthropic body."""
        read = decode(body, MessagesBody)
        return Call(
            messages_prompt(read, defaults),
            model=read.model,
            is_stream=bool(read.stream),
            tokens_max=read.max_tokens,
            emulate=read.homeport_emulate or EmulateAsk(),
        )

    def writer(self, call: Call, rid: str, span: CallSpan | None) -> Writer:
        """The writer of a message."""
        return MessagesWriter(rid, call.model, call=span)

    def error_body(self, status: int, message: str) -> bytes:
        """The error wrapped in a typed object."""
        return encode(messages_wire.error_of(status, message))

    def queue_full(self, *, is_stream: bool) -> Refusal | list[bytes]:
        """Always a status, streamed or not."""
        del is_stream
        return Refusal(_UNAVAILABLE, self.error_body(_UNAVAILABLE, QUEUE_FULL_TEXT))

"""Reads streamed answers of both dialects: text, tool calls, usage, errors. No sockets here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from sim.workload.turns import MESSAGES_PATH, Answer, ToolCall

_EVENT_BYTES_MAX: Final = 8 * 1024 * 1024


@dataclass(slots=True)
class Usage:
    """What the engine counted; the prompt's cached part is included in ``prompt_tokens``."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_CallDelta] | None = None
    # Anthropic
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    # Anthropic
    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens: int | None = None


class _Block(msgspec.Struct):
    type: str = ""
    id: str = ""
    name: str = ""


class _Message(msgspec.Struct):
    usage: _Usage | None = None


class _Event(msgspec.Struct):
    """One event of either dialect; unknown keys are skipped."""

    type: str = ""
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    # Anthropic
    index: int = 0
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None


@dataclass(slots=True)
class _OpenCall:
    call_id: str
    name: str
    arguments: str = ""


class AnswerStream:
    """Takes the bytes of one streamed answer and keeps what an agent needs of it."""

    def __init__(self, path: str) -> None:
        self._decoder = msgspec.json.Decoder(_Event)
        self._is_messages = path == MESSAGES_PATH
        self._rest = b""
        self._text: list[str] = []
        self._calls: dict[int, _OpenCall] = {}
        self.usage: Usage | None = None
        self.has_begun = False
        """Whether text, reasoning or a tool call was seen."""
        self.is_ended = False
        """Whether the dialect's end of the stream was seen."""
        self.error: str | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes, cut anywhere."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > _EVENT_BYTES_MAX:
            self.error = f"an event of the stream is over {_EVENT_BYTES_MAX} bytes"
            self._rest = b""
        for line in lines:
            if line.startswith(b"data:"):
                self._data(line[5:].strip())

    def answer(self) -> Answer:
        """Text and tool calls so far."""
        calls = (self._calls[index] for index in sorted(self._calls))
        return Answer(
            "".join(self._text),
            tuple(ToolCall(call.call_id, call.name, call.arguments or "{}") for call in calls),
        )

    def _data(self, payload: bytes) -> None:
        if payload == b"[DONE]":
            self.is_ended = True
            return
        try:
            event = self._decoder.decode(payload)
        except (msgspec.MsgspecError, RecursionError) as error:
            self.error = f"unreadable event in the stream: {error}"
            return
        if event.error is not None:
            self.error = msgspec.json.encode(event.error)[:300].decode(errors="replace")
        elif self._is_messages:
            self._messages_event(event)
        else:
            self._chat_event(event)

    def _chat_event(self, event: _Event) -> None:
        if (usage := event.usage) is not None:
            details = usage.prompt_tokens_details
            self.usage = Usage(
                prompt_tokens=usage.prompt_tokens or 0,
                cached_tokens=(details.cached_tokens or 0) if details else 0,
                output_tokens=usage.completion_tokens or 0,
            )
        for choice in event.choices or ():
            if choice.delta is not None:
                self._chat_delta(choice.delta)

    def _chat_delta(self, delta: _Delta) -> None:
        if delta.content:
            self._text.append(delta.content)
            self.has_begun = True
        if delta.reasoning_content:
            self.has_begun = True
        for part in delta.tool_calls or ():
            self.has_begun = True
            function = part.function or _Function()
            call = self._calls.setdefault(part.index, _OpenCall("", ""))
            call.call_id = part.id or call.call_id
            call.name = function.name or call.name
            call.arguments += function.arguments or ""

    def _messages_event(self, event: _Event) -> None:
        if event.type == "message_stop":
            self.is_ended = True
        elif event.type == "message_start" and event.message is not None:
            self._messages_usage(event.message.usage)
        elif event.type == "message_delta":
            self._messages_usage(event.usage)
        elif event.type == "content_block_start" and event.content_block is not None:
            block = event.content_block
            if block.type == "tool_use":
                self.has_begun = True
                self._calls[event.index] = _OpenCall(block.id, block.name)
        elif event.type == "content_block_delta" and event.delta is not None:
            self._block_delta(event.index, event.delta)

    def _block_delta(self, index: int, delta: _Delta) -> None:
        self.has_begun = True
        if delta.text:
            self._text.append(delta.text)
        if delta.partial_json and index in self._calls:
            self._calls[index].arguments += delta.partial_json

    def _messages_usage(self, usage: _Usage | None) -> None:
        if usage is None:
            return
        known = self.usage = self.usage or Usage()
        if usage.input_tokens is not None:
            known.cached_tokens = usage.cache_read_input_tokens or 0
            written = usage.cache_creation_input_tokens or 0
            known.prompt_tokens = usage.input_tokens + known.cached_tokens + written
        if usage.output_tokens is not None:
            known.output_tokens = usage.output_tokens

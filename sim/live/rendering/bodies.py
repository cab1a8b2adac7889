"""Request bodies of the chat API as SGLang 0.5.23 reads them, and what is common to all dialects.

Unknown keys are dropped, as there. ``homeport_emulate`` is the emulator's own extension.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

_T = TypeVar("_T")

_FUNCTION_KEYS: Final = ("description", "name", "parameters", "strict", "defer_loading")
"""In SGLang's order, which is that of the keys that were not sent."""

_LEFT_OUT_IF_NULL: Final = frozenset({"strict", "defer_loading"})


class BadBodyError(Exception):
    """The body cannot be served; the text says why. Answered with status 400."""


class UnreadableBodyError(BadBodyError):
    """The body is not JSON, or not of the shape that the endpoint takes."""


class Part(msgspec.Struct):
    """One part of a message's content."""

    type: str = "text"
    text: str | None = None
    image_url: Any = None
    name: str | None = None


class FunctionCall(msgspec.Struct):
    """What an assistant called; ``arguments`` is a JSON object or its text."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None

    def parsed(self) -> dict[str, Any] | None:
        """The arguments as the template prints them.

        Raises:
            BadBodyError: they are text that is not a JSON object.
        """
        if not isinstance(self.arguments, str):
            return self.arguments
        try:
            return msgspec.json.decode(self.arguments, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadBodyError(
                f"arguments of a call of {self.name!r}: not a JSON object"
            ) from error


class ToolCall(msgspec.Struct):
    """One call in an assistant message."""

    function: FunctionCall
    id: str | None = None


class ChatMessage(msgspec.Struct):
    """One message as the template sees it."""

    role: str
    content: str | list[Part] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None


class Tool(msgspec.Struct):
    """One declared tool; the order of keys inside ``function`` is kept."""

    function: dict[str, Any]
    type: str = "function"
    defer_loading: bool | None = None

    def shown(self) -> dict[str, Any]:
        """What the template prints of it: keys that were not sent are null and come last."""
        function = {key: value for key, value in self.function.items() if key in _FUNCTION_KEYS}
        for key in _FUNCTION_KEYS:
            function.setdefault(key, None)
        if function["defer_loading"] is None:
            function["defer_loading"] = self.defer_loading
        for key in _LEFT_OUT_IF_NULL:
            if function[key] is None:
                del function[key]
        return {"type": self.type, "function": function, "defer_loading": self.defer_loading}


class ToolCallAsk(msgspec.Struct):
    """A tool call the answer is to end with."""

    name: str
    arguments: dict[str, Any] = {}


class EmulateAsk(msgspec.Struct):
    """What a load generator wants the answer to be (body field ``homeport_emulate``).

    Without ``reasoning_tokens`` the answer has no reasoning: a client that does not send it back
    finds its whole past cached then. A request without this field gets the replica's usual share.
    """

    output_tokens: int | None = None
    reasoning_tokens: int = 0
    tool_call: ToolCallAsk | None = None


class StreamOptions(msgspec.Struct):
    """``stream_options`` of the OpenAI dialects."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ChatBody(msgspec.Struct):
    """Body of ``/v1/chat/completions``, and of ``/v1/tokenize`` with messages."""

    messages: list[ChatMessage]
    model: str = "default"
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    ignore_eos: bool | None = None
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    rid: str | None = None
    cache_salt: str | None = None
    extra_key: str | None = None
    homeport_emulate: EmulateAsk | None = None


class TokenizeBody(msgspec.Struct):
    """Body of ``/v1/tokenize`` with plain text; with messages it is a :class:`ChatBody`."""

    prompt: str | list[str] | None = None
    messages: Any = None


@dataclass(slots=True)
class TemplateDefaults:
    """What a replica's flags decide about rendering.

    ``hoist_inline_system`` moves inline system messages of the Anthropic dialect to the head, as
    SGLang does for templates that render only one; Kimi's keeps them in place.
    """

    preserve_thinking: bool = False
    hoist_inline_system: bool = False


@dataclass(slots=True)
class Prompt:
    """What the template is given: ``tools`` as it prints them, ``opening`` of the answer last."""

    messages: list[ChatMessage]
    tools: list[dict[str, Any]] = field(default_factory=list)
    is_thinking: bool = True
    preserve_thinking: bool = False
    add_generation_prompt: bool = True
    opening: str = ""


def decode(body: bytes, kind: type[_T]) -> _T:
    """Read a body.

    Raises:
        BadBodyError: it is not JSON, or a field is missing or has the wrong type.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableBodyError(str(error) or "the body is nested too deeply") from error


def chat_prompt(body: ChatBody, defaults: TemplateDefaults) -> Prompt:
    """What the template is given for a chat body.

    Raises:
        BadBodyError: no messages, or the tool choice names no declared tool.
    """
    if not body.messages:
        raise BadBodyError("messages must not be empty")
    kwargs = body.chat_template_kwargs or {}
    is_thinking = kwargs.get("thinking", body.reasoning_effort != "none") is not False
    chosen: str | None = None
    if isinstance(body.tool_choice, dict):
        function = body.tool_choice.get("function")
        chosen = str(function.get("name")) if isinstance(function, dict) else ""
    messages, opening = body.messages, ""
    if body.add_generation_prompt is None or body.continue_final_message:
        messages, opening = ended(messages, is_continued=body.continue_final_message)
    return Prompt(
        messages=messages,
        tools=[] if body.tool_choice == "none" else choose(body.tools or (), chosen),
        is_thinking=is_thinking,
        preserve_thinking=bool(kwargs.get("preserve_thinking", defaults.preserve_thinking)),
        add_generation_prompt=body.add_generation_prompt is not False,
        opening=opening,
    )


def ended(messages: list[ChatMessage], *, is_continued: bool) -> tuple[list[ChatMessage], str]:
    """The messages of a prompt to answer, and the text that the answer is made to begin with.

    The text of an assistant's message at the end becomes a user's, or begins the answer; one that
    is a list of parts stays.

    Raises:
        BadBodyError: a call that is no longer shown has arguments that are not a JSON object.
    """
    last = messages[-1]
    if last.role.lower() != "assistant" or isinstance(last.content, list):
        return messages, ""
    for call in last.tool_calls or ():
        call.function.parsed()
    text = last.content or ""
    if is_continued:
        return messages[:-1], text
    return [*messages[:-1], ChatMessage("user", text)], ""


class CacheKeyed(Protocol):
    """A body that may have its prompt cached apart."""

    cache_salt: str | None
    extra_key: str | None


def cache_key(body: CacheKeyed) -> str | None:
    """What keeps this prompt's cache apart from others', None for the common cache."""
    if not body.extra_key:
        return body.cache_salt or None
    return f"{body.extra_key}\0{body.cache_salt or ''}"


def choose(tools: Sequence[Tool], name: str | None) -> list[dict[str, Any]]:
    """The tools that stay in the prompt: all, or only the one of this name.

    Raises:
        BadBodyError: no tool has this name.
    """
    chosen = [tool.shown() for tool in tools if name in (None, tool.function.get("name"))]
    if name is not None and not chosen:
        raise BadBodyError(f"tool_choice names {name!r}, which tools does not declare")
    return chosen

"""Request bodies of the chat API as SGLang 0.5.23 reads them, and what is common to all dialects.

Unknown keys are dropped, as there. ``homeport_emulate`` is the emulator's own extension.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

_T = TypeVar("_T")

KNOWN_FUNCTION_KEYS: Final = frozenset({"name", "description", "parameters", "strict"})


class BadBodyError(Exception):
    """The body cannot be served; the text says why. Answered with status 400."""


class Part(msgspec.Struct):
    """One part of a message's content."""

    type: str = "text"
    text: str | None = None
    image_url: Any = None


class FunctionCall(msgspec.Struct):
    """What an assistant called; ``arguments`` is a JSON object or its text."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


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


class ToolCallAsk(msgspec.Struct):
    """A tool call the answer is to end with."""

    name: str
    arguments: dict[str, Any] = {}


class EmulateAsk(msgspec.Struct):
    """What a load generator wants the answer to be (body field ``homeport_emulate``)."""

    output_tokens: int | None = None
    tool_call: ToolCallAsk | None = None


class StreamOptions(msgspec.Struct):
    """``stream_options`` of the OpenAI dialects."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ChatBody(msgspec.Struct):
    """Body of ``/v1/chat/completions``, and of ``/v1/tokenize`` with messages."""

    messages: list[ChatMessage]
    model: str = ""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    add_generation_prompt: bool = True
    rid: str | None = None
    cache_salt: str | None = None
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
    """What the template is given."""

    messages: list[ChatMessage]
    functions: list[dict[str, Any]] = field(default_factory=list)
    is_thinking: bool = True
    preserve_thinking: bool = False
    add_generation_prompt: bool = True


def decode(body: bytes, kind: type[_T]) -> _T:
    """Read a body.

    Raises:
        BadBodyError: it is not JSON, or a field is missing or has the wrong type.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadBodyError(str(error) or "the body is nested too deeply") from error


def chat_prompt(body: ChatBody, defaults: TemplateDefaults) -> Prompt:
    """What the template is given for a chat body.

    Raises:
        BadBodyError: no messages, or the tool choice names no declared tool.
    """
    if not body.messages:
        raise BadBodyError("messages must not be empty")
    if body.temperature is not None and not 0.0 <= body.temperature <= 2.0:  # noqa: PLR2004 -- the API's range
        raise BadBodyError(f"temperature must be between 0 and 2, got {body.temperature}")
    kwargs = body.chat_template_kwargs or {}
    is_thinking = kwargs.get("thinking")
    if is_thinking is None:
        is_thinking = body.reasoning_effort != "none"
    chosen: str | None = None
    if isinstance(body.tool_choice, dict):
        function = body.tool_choice.get("function")
        chosen = str(function.get("name")) if isinstance(function, dict) else ""
    functions = [
        {key: value for key, value in tool.function.items() if key in KNOWN_FUNCTION_KEYS}
        for tool in body.tools or ()
    ]
    return Prompt(
        messages=body.messages,
        functions=[] if body.tool_choice == "none" else choose(functions, chosen),
        is_thinking=bool(is_thinking),
        preserve_thinking=bool(kwargs.get("preserve_thinking", defaults.preserve_thinking)),
        add_generation_prompt=body.add_generation_prompt,
    )


def choose(functions: list[dict[str, Any]], name: str | None) -> list[dict[str, Any]]:
    """The functions that stay in the prompt: all, or only the one of this name.

    Raises:
        BadBodyError: no function has this name.
    """
    if name is None:
        return functions
    chosen = [function for function in functions if function.get("name") == name]
    if not chosen:
        raise BadBodyError(f"tool_choice names {name!r}, which tools does not declare")
    return chosen

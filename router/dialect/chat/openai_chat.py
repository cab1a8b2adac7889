"""The dialect of ``/v1/chat/completions``, as SGLang reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import xxhash

from hashing.chain import root
from hashing.segments import segments_of
from router.dialect import errors
from router.dialect.body import render
from router.dialect.body.memo import ASSISTANT_TURNS, RenderedPart, Turn
from router.dialect.body.reading import (
    assembled,
    decoded,
    is_given,
    is_true,
    without_old_reasoning,
)
from router.dialect.body.render import ShapeError, need_list, need_object, need_text
from router.dialect.chat import template_kwargs
from router.dialect.chat.chat_tap import chat_tap
from router.dialect.envelope.frame import NO_RAW, BodyReader, Envelope
from router.dialect.envelope.usage_wish import usage_edit, with_usage

if TYPE_CHECKING:
    from router.dialect.base import Headers, PromptFacts, Tap
    from router.dialect.body.memo import PartMemo
    from router.dialect.body.reading import Assembled
    from router.dialect.body.splice import Edit
    from router.dialect.options import DialectOptions
    from router.errors import RouterError

_MESSAGE_SEED: Final = 1
_TOOLS_SEED: Final = 2
_PLAIN_ROOT: Final = root()
_ASSISTANT: Final = "assistant"
_TURNS: Final = {"system": Turn.SYSTEM, "developer": Turn.SYSTEM, "user": Turn.USER}


class ChatBody(Envelope, gc=False):
    """What is read of a body."""

    stream_options: msgspec.Raw = NO_RAW
    chat_template_kwargs: msgspec.Raw = NO_RAW
    reasoning_effort: msgspec.Raw = NO_RAW
    lora_path: msgspec.Raw = NO_RAW
    input_ids: msgspec.Raw = NO_RAW
    continue_final_message: msgspec.Raw = NO_RAW


class OpenAiChat:
    """OpenAI chat completions."""

    name = "openai-chat"

    def __init__(self, options: DialectOptions, memo: PartMemo) -> None:
        self._options = options
        self._memo = memo
        self._reader = BodyReader(
            self.name, ChatBody, self._rendered, session_header=options.session_header
        )

    def read(self, body: bytes, headers: Headers) -> PromptFacts:
        """Turn a request into facts.

        Raises:
            ClientError: the body is not JSON (``bad-request``, with the place of the fault).
        """
        return self._reader.read(body, headers)

    def outgoing(self, body: bytes, facts: PromptFacts) -> tuple[bytes, bool]:
        """The body to forward, and whether the usage event is to be stripped from the answer."""
        return (body, False) if facts.edit is None else with_usage(body, facts.edit)

    def tap(self, *, is_stream: bool, strip_usage: bool) -> Tap:
        """A follower for one answer."""
        return chat_tap(is_stream=is_stream, strip_usage=strip_usage)

    def error_body(self, error: RouterError) -> bytes:
        """The error as this API's JSON body."""
        return errors.openai_error(error)

    def error_event(self, error: RouterError) -> bytes:
        """The error as the events that end a stream of this API."""
        return errors.openai_error_event(error)

    def _rendered(self, parsed: ChatBody) -> tuple[Assembled, Edit | None]:
        if not parsed.messages or (parsed.input_ids and is_given(parsed.input_ids)):
            raise ShapeError("a prompt without messages")
        options, raw_kwargs = self._options, parsed.chat_template_kwargs
        kwargs = template_kwargs.read(raw_kwargs) if raw_kwargs else None
        turns = self._memo.parts(parsed.messages, _MESSAGE_SEED, _rendered_message)
        if turns[-1].turn in ASSISTANT_TURNS:
            is_continued = is_true(parsed.continue_final_message)
            turns[-1] = _last_answer(parsed.messages[-1], turns[-1], is_continued=is_continued)
        is_stripped = options.is_old_reasoning_stripped
        if kwargs:
            is_stripped = template_kwargs.is_old_reasoning_stripped(kwargs, options)
        if is_stripped:
            turns = without_old_reasoning(turns)
        adapter = options.adapter_of(parsed.model)
        seed = _PLAIN_ROOT
        if adapter or parsed.lora_path or kwargs or parsed.reasoning_effort:
            settings = (
                ("adapter", adapter or decoded(parsed.lora_path)),
                ("kwargs", template_kwargs.in_head(kwargs, options)),
                ("effort", template_kwargs.effort(parsed.reasoning_effort, options)),
            )
            seed = root(render.settings_bytes(settings))
        tools = self._tools(parsed) if parsed.tools else None
        head = [] if tools is None else [tools]
        edit = usage_edit(parsed.stream, parsed.stream_options, options) if parsed.stream else None
        return assembled(head, turns, seed=seed), edit

    def _tools(self, parsed: ChatBody) -> RenderedPart | None:
        """The declared tools; those that a tool choice keeps out of the prompt are left out."""
        if not is_given(parsed.tools):
            return None
        only = chosen(decoded(parsed.tool_choice))
        if only == "":
            return None
        key = xxhash.xxh3_128_digest(parsed.tools, _TOOLS_SEED)
        if only is not None:
            key += only.encode()
        return self._memo.part(key, lambda: _rendered_tools(parsed.tools, only))


def chosen(tool_choice: object) -> str | None:
    """The one tool that stays in the prompt; "" if none does, None if all do."""
    if tool_choice == "none":
        return ""
    function = tool_choice.get("function") if isinstance(tool_choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) and name else None


def _last_answer(raw: msgspec.Raw, entry: RenderedPart, *, is_continued: bool) -> RenderedPart:
    """An assistant's message that ends a prompt.

    SGLang shows its text as a user's, whatever calls and reasoning it has, or opens the answer
    with it. A list of parts stays what it is.
    """
    content = need_object(msgspec.json.decode(raw), "a message").get("content")
    if isinstance(content, list):
        return entry
    parts = render.content_parts(content)
    if is_continued:
        return RenderedPart(*segments_of([b"".join(parts)]))
    return _part(render.render_message("user", parts), "user")


def _rendered_message(raw: msgspec.Raw) -> RenderedPart:
    return rendered_message(need_object(msgspec.json.decode(raw), "a message"))


def rendered_message(fields: dict[str, Any]) -> RenderedPart:
    """A message of a chat, by its members.

    Raises:
        ShapeError: a role or a kind of content that is not known here.
    """
    role = need_text(fields.get("role"), "a message's role").lower()
    if role == "user":
        return _part(render.render_message(role, render.content_parts(fields.get("content"))), role)
    if role == _ASSISTANT:
        return _rendered_answer(fields)
    is_tool = role == "tool"
    content = render.content_parts(fields.get("content"), separator=" " if is_tool else "")
    call_id = need_text(fields.get("tool_call_id") or "", "tool_call_id") if is_tool else ""
    tools = fields.get("tools")
    more = b"" if tools is None else render.json_bytes(tools)
    name = _name(fields)
    return _part(render.render_message(role, content, name=name, call_id=call_id, more=more), role)


def _rendered_answer(fields: dict[str, Any]) -> RenderedPart:
    calls = [_call(call) for call in need_list(fields.get("tool_calls") or [], "tool_calls")]
    reasoning = need_text(fields.get("reasoning_content") or "", "reasoning_content")
    content = render.content_parts(fields.get("content"))
    turn = Turn.CALLS if calls else Turn.ANSWER

    def rendered(thoughts: str, bare: RenderedPart | None = None) -> RenderedPart:
        answer = render.render_message(
            _ASSISTANT, content, name=_name(fields), reasoning=thoughts, calls=calls
        )
        return RenderedPart(*segments_of([answer]), turn, bare)

    return rendered(reasoning, rendered("")) if reasoning else rendered("")


def _name(fields: dict[str, Any]) -> str:
    return need_text(fields.get("name") or "", "a message's name")


def _part(rendered: bytes, role: str) -> RenderedPart:
    return RenderedPart(*segments_of([rendered]), _TURNS.get(role, Turn.OTHER))


def _call(call: object) -> bytes:
    fields = need_object(call, "a tool call")
    function = need_object(fields.get("function"), "a tool call's function")
    return render.call_part(fields.get("id"), function.get("name"), function.get("arguments"))


def _rendered_tools(raw: msgspec.Raw, only: str | None) -> RenderedPart:
    parts = []
    for tool in need_list(msgspec.json.decode(raw), "tools"):
        fields = need_object(tool, "a tool")
        function = need_object(fields.get("function"), "a tool's function")
        if only is None or function.get("name") == only:
            kind = need_text(fields.get("type") or "function", "a tool's type")
            is_deferred = fields.get("defer_loading")
            parts.append(render.tool_part(function, kind=kind, is_deferred=is_deferred))
    return RenderedPart(*segments_of(render.render_tools(parts)))

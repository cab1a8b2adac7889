"""The dialect of ``/v1/responses``, as SGLang turns it into template messages."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import xxhash
from typing_extensions import override

from hashing.chain import root
from hashing.segments import segments_of
from router.dialect import errors
from router.dialect.base import PromptFacts, Work
from router.dialect.body import render
from router.dialect.body.memo import ASSISTANT_TURNS, RenderedPart, Turn
from router.dialect.body.reading import assembled, decoded, is_given, without_old_reasoning
from router.dialect.body.render import need_list, need_object
from router.dialect.chat import template_kwargs
from router.dialect.envelope.frame import NO_RAW, BodyReader, Envelope
from router.dialect.responses.responses_errors import failed_event
from router.dialect.responses.responses_items import (
    groups,
    last_group,
    rendered_group,
    rendered_item,
)
from router.dialect.responses.responses_tap import kept_tap, responses_tap

if TYPE_CHECKING:
    from router.dialect.base import Headers, Tap
    from router.dialect.body.memo import PartMemo
    from router.dialect.body.reading import Assembled
    from router.dialect.body.splice import Edit
    from router.dialect.options import DialectOptions
    from router.errors import RouterError

_ITEM_SEED: Final = 21
_TOOLS_SEED: Final = 23
_TEXT_SEED: Final = 24
_EFFORT_DEFAULT: Final = b'"medium"'

_PAYLOAD: Final = {
    "type": "object",
    "properties": {
        "input": {"type": "string", "description": "The freeform text payload for this tool."}
    },
    "required": ["input"],
    "additionalProperties": False,
}
"""What SGLang declares as the parameters of a tool that takes free text."""


class ResponsesBody(Envelope, gc=False, kw_only=True):
    """What is read of a body beside its input."""

    max_tokens: msgspec.Raw = msgspec.field(default=NO_RAW, name="max_output_tokens")
    instructions: str | None = None
    reasoning: msgspec.Raw = NO_RAW
    chat_template_kwargs: msgspec.Raw = NO_RAW


class ItemsBody(ResponsesBody, gc=False, kw_only=True):
    """A body whose input is a list of items."""

    messages: list[msgspec.Raw] = msgspec.field(name="input")


class TextBody(ResponsesBody, gc=False, kw_only=True):
    """A body whose input is a text: one message of a user."""

    messages: list[msgspec.Raw] = msgspec.field(name="no items", default_factory=list)
    text: str = msgspec.field(name="input")


class OpenAiResponses:
    """OpenAI responses."""

    name = "openai-responses"

    def __init__(self, options: DialectOptions, memo: PartMemo) -> None:
        self._options = options
        self._memo = memo
        header = options.session_header
        self._items = BodyReader(
            self.name, ItemsBody, self._of_items, session_header=header, has_previous=True
        )
        self._text = BodyReader(
            self.name, TextBody, self._of_text, session_header=header, has_previous=True
        )
        self._item = partial(rendered_item, is_system_hoisted=options.is_inline_system_hoisted)

    def read(self, body: bytes, headers: Headers) -> PromptFacts:
        """Turn a request into facts.

        Raises:
            ClientError: the body is not JSON (``bad-request``, with the place of the fault).
        """
        facts = self._items.read(body, headers)
        return facts if facts.is_readable else self._text.read(body, headers)

    def outgoing(self, body: bytes, facts: PromptFacts) -> tuple[bytes, bool]:  # noqa: ARG002
        """The body as it came: these answers always carry their usage."""
        return body, False

    def tap(self, *, is_stream: bool, strip_usage: bool) -> Tap:  # noqa: ARG002  # none is added
        """A follower for one answer."""
        return responses_tap(is_stream=is_stream)

    def error_body(self, error: RouterError) -> bytes:
        """The error as this API's JSON body."""
        return errors.openai_error(error)

    def error_event(self, error: RouterError) -> bytes:
        """The error as the event that ends a stream of this API."""
        return failed_event(error)

    def _of_items(self, parsed: ItemsBody) -> tuple[Assembled, Edit | None]:
        raws = parsed.messages
        entries = self._memo.parts(raws, _ITEM_SEED, self._item)
        found = groups(entries)
        turns = [
            entries[start] if end - start == 1 else self._group(entries[start:end], raws[start:end])
            for start, end in found
        ]
        if self._options.is_inline_system_hoisted:
            inline = [entry for entry in turns if entry.turn is Turn.SYSTEM]
            kept = [n for n, entry in enumerate(turns) if entry.turn is not Turn.SYSTEM]
            found, turns = [found[n] for n in kept], [turns[n] for n in kept]
        else:
            inline = []
        if turns and turns[-1].turn in ASSISTANT_TURNS:
            start, end = found[-1]
            turns[-1] = last_group(raws[start:end], turns[-1])
        return self._assembled(parsed, [*inline, *turns]), None

    def _of_text(self, parsed: TextBody) -> tuple[Assembled, Edit | None]:
        return self._assembled(parsed, [self._message("user", parsed.text)]), None

    def _group(self, entries: list[RenderedPart], raws: list[msgspec.Raw]) -> RenderedPart:
        """Items that become one message; remembered as one."""
        key = b"".join([entry.key for entry in entries])
        return self._memo.get(key) or self._memo.part(key, lambda: rendered_group(raws))

    def _message(self, role: str, text: str) -> RenderedPart:
        key = xxhash.xxh3_128_digest(text.encode(), _TEXT_SEED) + role.encode()
        return self._memo.part(key, lambda: _text_message(role, text))

    def _assembled(self, parsed: ResponsesBody, turns: list[RenderedPart]) -> Assembled:
        kwargs = template_kwargs.read(parsed.chat_template_kwargs)
        if template_kwargs.is_old_reasoning_stripped(kwargs, self._options):
            turns = without_old_reasoning(turns)
        if parsed.instructions:
            turns = [self._message("system", parsed.instructions), *turns]
        settings = render.settings_bytes(
            (
                ("adapter", self._options.adapter_of(parsed.model)),
                ("kwargs", template_kwargs.in_head(kwargs, self._options)),
                ("effort", template_kwargs.effort(_effort(parsed.reasoning), self._options)),
                # What the replica puts before these items is known to it alone.
                ("previous", decoded(parsed.previous_response_id)),
            )
        )
        tools = self._tools(parsed)
        return assembled([] if tools is None else [tools], turns, seed=root(settings))

    def _tools(self, parsed: ResponsesBody) -> RenderedPart | None:
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


class KeptResponses(OpenAiResponses):
    """What is asked about a response that is kept: ``/v1/responses/{id}`` and below it.

    Such a request has no prompt, and its answer tells of work that was counted before.
    """

    @override
    def read(self, body: bytes, headers: Headers) -> PromptFacts:
        """Facts without a prompt."""
        return PromptFacts(dialect=self.name, work=Work.OTHER, is_readable=False)

    @override
    def tap(self, *, is_stream: bool, strip_usage: bool) -> Tap:
        """A follower that reads no usage."""
        return kept_tap(is_stream=is_stream)


def chosen(tool_choice: object) -> str | None:
    """The one tool that stays in the prompt; "" if none does, None if all do."""
    if tool_choice == "none":
        return ""
    if not isinstance(tool_choice, dict) or tool_choice.get("type") not in ("function", "custom"):
        return None
    function = tool_choice.get("function")
    named = function.get("name") if isinstance(function, dict) else None
    name = tool_choice.get("name") or named
    return name if isinstance(name, str) and name else None


def _effort(reasoning: msgspec.Raw) -> msgspec.Raw:
    """The effort as SGLang hands it to the template; it has a default where reasoning is asked for."""
    if not is_given(reasoning):
        return NO_RAW
    fields = msgspec.json.decode(reasoning, type=dict[str, msgspec.Raw])
    return fields.get("effort") or msgspec.Raw(_EFFORT_DEFAULT)


def _text_message(role: str, text: str) -> RenderedPart:
    turn = Turn.SYSTEM if role == "system" else Turn.USER
    rendered = render.render_message(role, render.text_parts(text))
    return RenderedPart(*segments_of([rendered]), turn)


def _rendered_tools(raw: msgspec.Raw, only: str | None) -> RenderedPart:
    """Functions, and tools that take free text; what a server would run itself is not shown."""
    parts = []
    for tool in need_list(msgspec.json.decode(raw), "tools"):
        fields = need_object(tool, "a tool")
        function = _function(fields)
        if function is not None and only in (None, function["name"]):
            parts.append(render.tool_part(function))
    return RenderedPart(*segments_of(render.render_tools(parts)))


def _function(tool: dict[str, Any]) -> dict[str, Any] | None:
    kind, name = tool.get("type"), tool.get("name")
    if kind == "function":
        described, parameters = tool.get("description"), tool.get("parameters")
    elif kind == "custom" and name:
        described, parameters = _custom_description(tool), _PAYLOAD
    else:
        return None
    strict = tool.get("strict", False)
    return {"name": name, "description": described, "parameters": parameters, "strict": strict}


def _custom_description(tool: dict[str, Any]) -> str | None:
    """The description, with the grammar that the text is to follow."""
    described = tool.get("description")
    parts = [str(described)] if described else []
    form = tool.get("format")
    if isinstance(form, dict) and form.get("type") == "grammar":
        syntax, grammar = form.get("syntax") or "lark", form.get("definition") or ""
        parts.append(f"The payload must conform to this {syntax} grammar:\n{grammar}")
    return "\n\n".join(parts) or None

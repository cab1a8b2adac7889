"""The dialect of ``/v1/messages``, as SGLang turns it into template messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import xxhash

from hashing.chain import root
from hashing.segments import segments_of
from router.dialect import errors
from router.dialect.body import render, splice
from router.dialect.body.memo import ASSISTANT_TURNS, RenderedPart, Turn
from router.dialect.body.reading import assembled, decoded, is_given
from router.dialect.body.render import ShapeError, need_list, need_object, need_text
from router.dialect.envelope.frame import NO_RAW, BodyReader, Envelope
from router.dialect.messages import billing
from router.dialect.messages.anthropic_content import last_answer, rendered_message, system_text
from router.dialect.messages.messages_tap import messages_tap

if TYPE_CHECKING:
    from router.dialect.base import Headers, PromptFacts, Tap
    from router.dialect.body.memo import PartMemo
    from router.dialect.body.reading import Assembled
    from router.dialect.body.splice import Edit
    from router.dialect.options import DialectOptions
    from router.errors import RouterError

_MESSAGE_SEED: Final = 3
_TOOLS_SEED: Final = 4
_SYSTEM_SEED: Final = 5
_SERVER_TOOLS: Final = ("web_search_", "computer_", "bash_", "text_editor_")
"""Types that SGLang leaves out of the prompt."""


class MessagesBody(Envelope, gc=False):
    """What is read of a body."""

    system: list[msgspec.Raw] | str | None = None
    thinking: msgspec.Raw = NO_RAW
    output_config: msgspec.Raw = NO_RAW


class AnthropicMessages:
    """The Anthropic messages API."""

    name = "anthropic-messages"

    def __init__(self, options: DialectOptions, memo: PartMemo) -> None:
        self._options = options
        self._memo = memo
        self._reader = BodyReader(
            self.name, MessagesBody, self._rendered, session_header=options.session_header
        )

    def read(self, body: bytes, headers: Headers) -> PromptFacts:
        """Turn a request into facts.

        Raises:
            ClientError: the body is not JSON (``bad-request``, with the place of the fault).
        """
        return self._reader.read(body, headers)

    def outgoing(self, body: bytes, facts: PromptFacts) -> tuple[bytes, bool]:
        """The body to forward; nothing is ever stripped, since these streams carry their usage."""
        if facts.edit is None:
            return body, False
        cleaned = billing.cleaned_system
        return splice.edited(body, facts.edit, key="system", value=cleaned), False

    def tap(self, *, is_stream: bool, strip_usage: bool) -> Tap:  # noqa: ARG002  # none is added
        """A follower for one answer."""
        return messages_tap(is_stream=is_stream)

    def error_body(self, error: RouterError) -> bytes:
        """The error as this API's JSON body."""
        return errors.anthropic_error(error)

    def error_event(self, error: RouterError) -> bytes:
        """The error as the event that ends a stream of this API."""
        return errors.anthropic_error_event(error)

    def _rendered(self, parsed: MessagesBody) -> tuple[Assembled, Edit | None]:
        if not parsed.messages:
            raise ShapeError("a prompt without messages")
        is_shown = self._options.is_thinking_in_head
        settings = render.settings_bytes(
            (
                ("adapter", self._options.adapter_of(parsed.model)),
                ("kwargs", _thinking(decoded(parsed.thinking)) if is_shown else None),
                ("effort", _effort(decoded(parsed.output_config)) if is_shown else None),
            )
        )
        system, edit = self._system(parsed.system)
        turns = self._memo.parts(parsed.messages, _MESSAGE_SEED, self._message)
        last = self._last_index(turns)
        if turns[last].turn in ASSISTANT_TURNS:
            turns[last] = last_answer(parsed.messages[last], turns[last])
        if self._options.is_inline_system_hoisted:
            inline = [entry for entry in turns if entry.turn is Turn.SYSTEM]
            turns = [*inline, *[entry for entry in turns if entry.turn is not Turn.SYSTEM]]
        head = [entry for entry in (self._tools(parsed), system) if entry is not None]
        return assembled(head, turns, seed=root(settings)), edit

    def _last_index(self, turns: list[RenderedPart]) -> int:
        """Which message ends the prompt: the last one of which anything is shown in its place."""
        index = len(turns) - 1
        is_hoisted = self._options.is_inline_system_hoisted
        while index and (
            not turns[index].digests or (is_hoisted and turns[index].turn is Turn.SYSTEM)
        ):
            index -= 1
        return index

    def _message(self, raw: msgspec.Raw) -> RenderedPart:
        return rendered_message(raw, is_system_hoisted=self._options.is_inline_system_hoisted)

    def _system(
        self, system: list[msgspec.Raw] | str | None
    ) -> tuple[RenderedPart | None, Edit | None]:
        """The system message that the engine will see, and the edit that makes it so."""
        if not system:
            return None, None
        if isinstance(system, str):
            edit = billing.text_edit(system) if self._options.is_billing_line_removed else None
            text = system if edit is None else billing.without_line(system)
            key = xxhash.xxh3_128_digest(text.encode(), _SYSTEM_SEED)
            return self._memo.part(key, lambda: _system_part(text if text.strip() else "")), edit
        blocks = [bytes(block) for block in system]
        edit = None
        if self._options.is_billing_line_removed:
            cleaned = [billing.cleaned_block(block) for block in blocks]
            edit = billing.block_edit(blocks, cleaned)
            blocks = [block for block in cleaned if block is not None]
        key = xxhash.xxh3_128_digest(b"[" + b",".join(blocks), _SYSTEM_SEED)
        return self._memo.part(key, lambda: _system_part(system_text(blocks))), edit

    def _tools(self, parsed: MessagesBody) -> RenderedPart | None:
        """The declared tools; those that a tool choice keeps out of the prompt are left out."""
        if not is_given(parsed.tools):
            return None
        choice = decoded(parsed.tool_choice)
        kind = choice.get("type") if isinstance(choice, dict) else None
        if kind == "none":
            return None
        only = choice.get("name") if kind == "tool" else None
        key = xxhash.xxh3_128_digest(parsed.tools, _TOOLS_SEED)
        if isinstance(only, str):
            key += only.encode()
        return self._memo.part(key, lambda: _rendered_tools(parsed.tools, only))


def _thinking(thinking: object) -> dict[str, bool] | None:
    """The template's switch, in the form in which a chat completion carries it."""
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    return None if kind is None else {"thinking": kind != "disabled"}


def _effort(output_config: object) -> object:
    """The reasoning effort as SGLang hands it to the template."""
    effort = output_config.get("effort") if isinstance(output_config, dict) else None
    return "max" if effort == "xhigh" else effort


def _system_part(text: str) -> RenderedPart:
    return RenderedPart(*segments_of([render.render_system(text)] if text else []))


def _rendered_tools(raw: msgspec.Raw, only: object) -> RenderedPart:
    parts = []
    for tool in need_list(msgspec.json.decode(raw), "tools"):
        fields: dict[str, Any] = need_object(tool, "a tool")
        kind = need_text(fields.get("type") or "", "a tool's type")
        if kind.startswith(_SERVER_TOOLS) or (only is not None and fields.get("name") != only):
            continue
        schema = need_object(fields.get("input_schema"), "a tool's input_schema")
        function = {
            "name": fields.get("name"),
            "description": fields.get("description") or "",
            "parameters": schema if "type" in schema else {**schema, "type": "object"},
            "strict": fields.get("strict", False),
        }
        parts.append(render.tool_part(function, is_deferred=fields.get("defer_loading")))
    return RenderedPart(*segments_of(render.render_tools(parts)))

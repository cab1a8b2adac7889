"""The dialect of ``/v1/completions``, as SGLang reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from hashing.chain import root
from router.dialect import errors
from router.dialect.body import render
from router.dialect.body.reading import assembled, decoded
from router.dialect.chat.chat_tap import chat_tap
from router.dialect.envelope.frame import NO_RAW, BodyReader, Envelope
from router.dialect.envelope.usage_wish import usage_edit, with_usage
from router.dialect.text import plain_prompt

if TYPE_CHECKING:
    from router.dialect.base import Headers, PromptFacts, Tap
    from router.dialect.body.memo import PartMemo
    from router.dialect.body.reading import Assembled
    from router.dialect.body.splice import Edit
    from router.dialect.options import DialectOptions
    from router.errors import RouterError

_OUTPUT_TOKENS: Final = 16
"""What this API generates where a request does not say how much."""


class CompletionBody(Envelope, gc=False):
    """What is read of a body."""

    messages: list[msgspec.Raw] = msgspec.field(default_factory=list)
    prompt: msgspec.Raw = NO_RAW
    suffix: str | None = None
    stream_options: msgspec.Raw = NO_RAW
    lora_path: msgspec.Raw = NO_RAW


class OpenAiCompletions:
    """OpenAI completions: a text goes on."""

    name = "openai-completions"

    def __init__(self, options: DialectOptions, memo: PartMemo) -> None:
        del memo  # a prompt that grows is another value each time
        self._options = options
        self._reader = BodyReader(
            self.name, CompletionBody, self._rendered, session_header=options.session_header
        )

    def read(self, body: bytes, headers: Headers) -> PromptFacts:
        """Turn a request into facts.

        Raises:
            ClientError: the body is not JSON (``bad-request``, with the place of the fault).
        """
        facts = self._reader.read(body, headers)
        if facts.output_tokens_max is None:
            facts.output_tokens_max = _OUTPUT_TOKENS
        return facts

    def outgoing(self, body: bytes, facts: PromptFacts) -> tuple[bytes, bool]:
        """The body to forward, and whether the usage event is to be stripped from the answer."""
        return with_usage(body, facts.edit)

    def tap(self, *, is_stream: bool, strip_usage: bool) -> Tap:
        """A follower for one answer; its chunks tell the same as a chat's."""
        return chat_tap(is_stream=is_stream, strip_usage=strip_usage)

    def error_body(self, error: RouterError) -> bytes:
        """The error as this API's JSON body."""
        return errors.openai_error(error)

    def error_event(self, error: RouterError) -> bytes:
        """The error as the events that end a stream of this API."""
        return errors.openai_error_event(error)

    def _rendered(self, parsed: CompletionBody) -> tuple[Assembled, Edit | None]:
        prompt = decoded(parsed.prompt)
        if isinstance(prompt, list) and any(prompt):  # one that is empty altogether it refuses
            plain_prompt.refuse_empty_text(prompt)
        parts = plain_prompt.rendered(prompt, rest=parsed.suffix or "")
        adapter = self._options.adapter_of(parsed.model) or decoded(parsed.lora_path)
        settings = render.settings_bytes((("adapter", adapter),))
        edit = usage_edit(parsed.stream, parsed.stream_options, self._options)
        return assembled([], parts, seed=root(settings)), edit

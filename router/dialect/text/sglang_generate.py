"""The dialect of ``/generate``, SGLang's own: text or token ids, without a template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from hashing.chain import root
from router.dialect import errors
from router.dialect.body import render
from router.dialect.body.reading import assembled, decoded, first_text, is_given
from router.dialect.body.render import ShapeError
from router.dialect.envelope.frame import NO_RAW, BodyReader, Envelope
from router.dialect.text import plain_prompt
from router.dialect.text.generate_tap import generate_tap

if TYPE_CHECKING:
    from router.dialect.base import Headers, PromptFacts, Tap
    from router.dialect.body.memo import PartMemo
    from router.dialect.body.reading import Assembled
    from router.dialect.body.splice import Edit
    from router.dialect.options import DialectOptions
    from router.errors import RouterError

_OUTPUT_TOKENS: Final = 128
"""What the engine generates where a request does not say how much."""


class GenerateBody(Envelope, gc=False):
    """What is read of a body. It has no ``model`` of SGLang's, which passes over one that is there."""

    messages: list[msgspec.Raw] = msgspec.field(default_factory=list)
    text: msgspec.Raw = NO_RAW
    input_ids: msgspec.Raw = NO_RAW
    input_embeds: msgspec.Raw = NO_RAW
    image_data: msgspec.Raw = NO_RAW
    video_data: msgspec.Raw = NO_RAW
    audio_data: msgspec.Raw = NO_RAW
    sampling_params: msgspec.Raw = NO_RAW
    lora_path: msgspec.Raw = NO_RAW


class _Sampling(msgspec.Struct, gc=False):
    max_new_tokens: msgspec.Raw = NO_RAW


class SglangGenerate:
    """SGLang's native generation."""

    name = "sglang-generate"

    def __init__(self, options: DialectOptions, memo: PartMemo) -> None:
        del memo  # a prompt that grows is another value each time
        self._options = options
        self._reader = BodyReader(
            self.name, GenerateBody, self._rendered, session_header=options.session_header
        )

    def read(self, body: bytes, headers: Headers) -> PromptFacts:
        """Turn a request into facts.

        Raises:
            ClientError: the body is not JSON (``bad-request``, with the place of the fault).
        """
        facts = self._reader.read(body, headers)
        facts.output_tokens_max = facts.output_tokens_max or _OUTPUT_TOKENS
        return facts

    def outgoing(self, body: bytes, facts: PromptFacts) -> tuple[bytes, bool]:  # noqa: ARG002  # as it came
        """The body as it came: every chunk tells its usage."""
        return body, False

    def tap(self, *, is_stream: bool, strip_usage: bool) -> Tap:  # noqa: ARG002  # none is added
        """A follower for one answer."""
        return generate_tap(is_stream=is_stream)

    def error_body(self, error: RouterError) -> bytes:
        """The error as this API's JSON body, with OpenAI's members in it."""
        return errors.openai_error(error)

    def error_event(self, error: RouterError) -> bytes:
        """The error as the events that end a stream of this API."""
        return errors.openai_error_event(error)

    def _rendered(self, parsed: GenerateBody) -> tuple[Assembled, Edit | None]:
        if is_given(parsed.input_embeds):
            raise ShapeError("a prompt of embeddings")
        # SGLang reads the ids where both are there.
        prompt = decoded(parsed.input_ids)
        if prompt is None:
            prompt = decoded(parsed.text)
            plain_prompt.refuse_empty_text(prompt)
        parts = plain_prompt.rendered(prompt)
        parsed.max_tokens = _limit(parsed.sampling_params)
        settings = render.settings_bytes(
            (
                ("adapter", first_text(decoded(parsed.lora_path)) or None),
                ("image", decoded(parsed.image_data)),
                ("video", decoded(parsed.video_data)),
                ("audio", decoded(parsed.audio_data)),
            )
        )
        return assembled([], parts, seed=root(settings)), None


def _limit(raw: msgspec.Raw) -> msgspec.Raw:
    """The most that is to be generated, from the sampling parameters; a batch's first ones count."""
    try:
        found = msgspec.json.decode(raw, type=_Sampling | list[_Sampling] | None) if raw else None
    except msgspec.ValidationError:
        return NO_RAW
    if isinstance(found, list):
        found = found[0] if found else None
    return NO_RAW if found is None else found.max_new_tokens

"""Paths of an engine that generate nothing: what is read of a call, and how its answer passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from typing_extensions import override

from router.dialect import errors
from router.dialect.base import PromptFacts, Work
from router.dialect.body.reading import fault, first_text, not_an_object
from router.dialect.clients.identity import safe_key
from router.dialect.envelope.frame import NO_RAW
from router.dialect.messages.anthropic_messages import AnthropicMessages
from router.dialect.stream.tap import Reading

if TYPE_CHECKING:
    from router.dialect.base import Headers, Tap
    from router.dialect.body.memo import PartMemo
    from router.dialect.options import DialectOptions
    from router.errors import RouterError


class _Named(msgspec.Struct, gc=False):
    """What is read of a body: for whom it is."""

    model: msgspec.Raw = NO_RAW
    lora_path: msgspec.Raw = NO_RAW


_decode: Final = msgspec.json.Decoder(_Named).decode


class CallTap(Reading):
    """Passes an answer on as it comes, whatever it is; there is no usage to learn from."""

    __slots__ = ()

    def feed(self, data: bytes) -> bytes:
        """Take the next body bytes; they are passed on at once."""
        self.has_begun = self.has_begun or bool(data)
        return data

    def finish(self) -> bytes:
        """The body has ended; nothing was held back."""
        self.has_begun = self.is_complete = True
        return b""


class EngineCall:
    """One such path whose bodies are JSON objects; errors have OpenAI's shape."""

    def __init__(self, name: str, options: DialectOptions, memo: PartMemo) -> None:
        del options, memo  # no prompt, no session
        self.name = name

    def read(self, body: bytes, headers: Headers) -> PromptFacts:  # noqa: ARG002  # no session
        """Turn a request into facts.

        Raises:
            ClientError: the body is not JSON (``bad-request``, with the place of the fault).
        """
        try:
            return _facts(self.name, Work.CALL, body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise not_an_object(body) or fault(body, error) from error

    def outgoing(self, body: bytes, facts: PromptFacts) -> tuple[bytes, bool]:  # noqa: ARG002
        """The body as it came."""
        return body, False

    def tap(self, *, is_stream: bool, strip_usage: bool) -> Tap:  # noqa: ARG002  # all alike
        """A follower for one answer."""
        return CallTap()

    def error_body(self, error: RouterError) -> bytes:
        """The error as OpenAI's JSON body."""
        return errors.openai_error(error)

    def error_event(self, error: RouterError) -> bytes:
        """The error as the events that end a stream."""
        return errors.openai_error_event(error)


class OtherPath(EngineCall):
    """A path that the operator lets through: any method, any content."""

    def __init__(self) -> None:
        self.name = "engine-path"

    @override
    def read(self, body: bytes, headers: Headers) -> PromptFacts:
        """Turn a request into facts: the model, where the body is JSON that names one."""
        try:
            return _facts(self.name, Work.OTHER, body)
        except (msgspec.DecodeError, RecursionError):
            return PromptFacts(self.name, work=Work.OTHER, is_readable=False)


class CountTokens(AnthropicMessages):
    """``/v1/messages/count_tokens``: a body of the messages API, of which only tokens are counted.

    It is changed as a message's would be, so that what is counted is what would be computed.
    """

    name = "anthropic-count-tokens"

    @override
    def read(self, body: bytes, headers: Headers) -> PromptFacts:
        """Turn a request into facts.

        Raises:
            ClientError: the body is not JSON (``bad-request``, with the place of the fault).
        """
        facts = super().read(body, headers)
        facts.work = Work.COUNT
        facts.is_stream = False
        return facts

    @override
    def tap(self, *, is_stream: bool, strip_usage: bool) -> Tap:
        """A follower for one answer."""
        return CallTap()


def _facts(name: str, work: Work, body: bytes) -> PromptFacts:
    """Facts of a body that is a JSON object.

    Raises:
        msgspec.DecodeError: it is none.
    """
    named = _decode(body)
    return PromptFacts(
        name, safe_key(_text(named.model)), work=work, lora_name=safe_key(_text(named.lora_path))
    )


def _text(raw: msgspec.Raw) -> str:
    """A string, or the first of a list; "" for anything else."""
    return first_text(msgspec.json.decode(raw)) if raw else ""

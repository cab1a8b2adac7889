"""What reading a JSON body has in common, whichever API it is."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec
import xxhash

from router.dialect.base import PromptFacts, SessionSource
from router.dialect.body.reading import (
    decoded,
    fault,
    first_text,
    is_true,
    not_an_object,
    whole_number,
)
from router.dialect.body.render import ShapeError, settings_bytes
from router.dialect.clients.identity import (
    KEY_LENGTH_MAX,
    Identity,
    Namer,
    body_key,
    chain_key,
    safe_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.dialect.base import Headers
    from router.dialect.body.reading import Assembled
    from router.dialect.body.splice import Edit

NO_RAW: Final = msgspec.Raw()
"""A member that is absent; false, as every empty ``Raw`` is."""

MESSAGES_MAX: Final = 20_000
"""A body of more is forwarded unread: rendering it would hold up everybody else."""

_MODELS_MAX: Final = 1024
_kept_key: Final = lru_cache(_MODELS_MAX)(safe_key)
_RANK: Final = b"x-data-parallel-rank"
_SHAPE_FAULTS: Final = (ShapeError, msgspec.ValidationError)
_JSON_FAULTS: Final = (msgspec.DecodeError, RecursionError)


class Envelope(msgspec.Struct, gc=False):
    """The members that every API's body may have; what is not named is passed over."""

    messages: list[msgspec.Raw]
    model: str = ""
    tools: msgspec.Raw = NO_RAW
    tool_choice: msgspec.Raw = NO_RAW
    stream: msgspec.Raw = NO_RAW
    max_tokens: msgspec.Raw = NO_RAW
    max_completion_tokens: msgspec.Raw = NO_RAW
    prompt_cache_key: msgspec.Raw = NO_RAW
    metadata: msgspec.Raw = NO_RAW
    previous_response_id: msgspec.Raw = NO_RAW
    session_id: msgspec.Raw = NO_RAW
    conversation_id: msgspec.Raw = NO_RAW
    user: msgspec.Raw = NO_RAW
    cache_salt: msgspec.Raw = NO_RAW
    extra_key: msgspec.Raw = NO_RAW
    routed_dp_rank: msgspec.Raw = NO_RAW
    data_parallel_rank: msgspec.Raw = NO_RAW

    def member(self, name: str) -> msgspec.Raw:
        """A raw member by its name; an empty one if the body has none, or the API no such."""
        value: msgspec.Raw = getattr(self, name)
        return value


BodyT = TypeVar("BodyT", bound=Envelope)


class BodyReader(Generic[BodyT]):
    """Reads bodies into a struct of ``body_type``; an API adds how its prompt is rendered.

    ``render`` answers the prompt's chain and the change to make to the body before it is
    forwarded, or raises ``ShapeError``. A shape that cannot be read gives facts that say so, for
    the body is then forwarded untouched: the engine may know more than we do, and its own
    complaint is the better one. ``has_previous``: the API can go on from a response that is kept.
    """

    def __init__(
        self,
        name: str,
        body_type: type[BodyT],
        render: Callable[[BodyT], tuple[Assembled, Edit | None]],
        *,
        session_header: str | None,
        has_previous: bool = False,
    ) -> None:
        self._name = name
        self._has_previous = has_previous
        self._decode = msgspec.json.Decoder(body_type).decode
        self._render = render
        self._namer = Namer(session_header.lower().encode() if session_header else None)

    def read(self, body: bytes, headers: Headers) -> PromptFacts:
        """Turn a request into facts.

        Raises:
            ClientError: the body is not JSON (``bad-request``, with the place of the fault).
        """
        try:
            parsed = self._decode(body)
            if len(parsed.messages) > MESSAGES_MAX:
                raise ShapeError("too many messages to read")
            prompt, edit = self._render(parsed)
            apart = kept_apart(parsed, headers)
            lora_path: msgspec.Raw = getattr(parsed, "lora_path", NO_RAW)
            lora_name = safe_key(first_text(decoded(lora_path))) if lora_path else ""
        except _SHAPE_FAULTS:
            return self._unreadable(body, headers)
        except _JSON_FAULTS as error:
            raise fault(body, error) from error
        if apart:
            prompt = prompt.apart(apart)
        identity = self._namer.in_headers(headers)
        if identity is None:
            identity = self._unnamed(headers, parsed.member, chain_key(prompt.opening))
        model = parsed.model
        return PromptFacts(
            dialect=self._name,
            # It is kept and logged: bounded and printable.
            model=_kept_key(model) if len(model) <= KEY_LENGTH_MAX else safe_key(model),
            is_stream=is_true(parsed.stream),
            output_tokens_max=whole_number(parsed.max_completion_tokens)
            or whole_number(parsed.max_tokens),
            session_key=identity.key,
            session_source=identity.source,
            parent_key=identity.parent_key,
            chain=prompt.chain,
            ends_bytes=prompt.ends_bytes,
            head_segments=prompt.head_segments,
            n_messages=len(parsed.messages),
            edit=edit,
            lora_name=lora_name,
            previous_id=self._previous_id(parsed.previous_response_id),
        )

    def _unreadable(self, body: bytes, headers: Headers) -> PromptFacts:
        """Facts of a body whose shape cannot be read: what its envelope still tells."""
        complaint = not_an_object(body)
        if complaint is not None:
            raise complaint
        try:
            fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        except _JSON_FAULTS as error:
            raise fault(body, error) from error
        fingerprint = body_key(xxhash.xxh3_64_intdigest(body))

        def field(name: str) -> msgspec.Raw:
            return fields.get(name, NO_RAW)

        identity = self._namer.in_headers(headers)
        if identity is None:
            identity = self._unnamed(headers, field, fingerprint)
        return PromptFacts(
            dialect=self._name,
            model=safe_key(_text(field("model"))),
            is_stream=is_true(field("stream")),
            is_readable=False,
            output_tokens_max=whole_number(field("max_completion_tokens"))
            or whole_number(field("max_tokens")),
            session_key=identity.key,
            session_source=identity.source,
            parent_key=identity.parent_key,
            previous_id=self._previous_id(field("previous_response_id")),
        )

    def _unnamed(self, headers: Headers, field: Callable[[str], msgspec.Raw], key: str) -> Identity:
        """Whose a request is whose headers do not say so; by ``key`` if its body does not either."""
        found = self._namer.in_body(headers, field, opening=key)
        return Identity(key, SessionSource.CHAIN) if found is None else found

    def _previous_id(self, raw: msgspec.Raw) -> str:
        return _text(raw) if raw and self._has_previous else ""


def kept_apart(parsed: Envelope, headers: Headers) -> bytes:
    """What keeps this prompt's cache apart from that of an equal one, as bytes; none if nothing.

    A salt, a key, and the data-parallel rank, each of which has a cache of its own. SGLang takes
    the rank from the header before the body.
    """
    rank = parsed.routed_dp_rank or parsed.data_parallel_rank
    in_head = b""
    for name, value in headers:
        if name == _RANK:
            in_head = value
            break
    if not (rank or in_head or parsed.cache_salt or parsed.extra_key):
        return b""
    ranks = [decoded(raw) for raw in (parsed.routed_dp_rank, parsed.data_parallel_rank)]
    in_body = next((str(value) for value in ranks if value is not None), None)
    named = (
        ("cache_salt", decoded(parsed.cache_salt) or None),
        ("extra_key", decoded(parsed.extra_key) or None),
        ("dp_rank", in_head.decode("latin-1") if in_head else in_body),
    )
    return settings_bytes(named) if any(value is not None for _, value in named) else b""


def _text(raw: msgspec.Raw) -> str:
    """A string member of a body that cannot be read otherwise, "" if it is none."""
    try:
        return msgspec.json.decode(raw, type=str)
    except (msgspec.DecodeError, RecursionError):
        return ""

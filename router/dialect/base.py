"""What a dialect is: one API's wire format, read and written without I/O."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from router.rows import Row

if TYPE_CHECKING:
    from router.dialect.body.splice import Edit
    from router.errors import RouterError

Headers = Sequence[tuple[bytes, bytes]]
"""Header lines in order, names in lower case, values stripped of outer blanks."""

_NO_CHAIN: Final = array("Q")
_NO_ENDS: Final = array("I")


class SessionSource(StrEnum):
    """Where a session key was read; from the most to the least certain."""

    CONFIGURED_HEADER = "configured-header"
    HEADER = "header"
    BODY = "body"
    CHAIN = "chain"


class Work(StrEnum):
    """What a request makes a replica do.

    A *generation* fills its cache and is a turn of a session. A *call* is not: it goes where least
    is in flight, a *count* of a session's tokens to its home. *Other* work is what the operator
    lets through to the engine; it need not name a model.
    """

    GENERATION = "generation"
    CALL = "call"
    COUNT = "count"
    OTHER = "other"


_GENERATION: Final = Work.GENERATION


class PromptFacts(Row):
    """What the router knows of one request before it decides. Not changed once names are resolved.

    ``chain[i]`` identifies everything rendered up to the end of segment ``i``; ``ends_bytes[i]`` is
    the number of canonical bytes up to there. Both have one entry a segment and are empty if the
    body's shape could not be read (``is_readable`` false: the body is forwarded untouched).
    ``head_segments`` is how many leading segments are tools and system text: what sessions share.
    ``tenant`` is whose request it is, ``scope`` the same as a number of 64 bits: "" and 0 where
    there are none; ``priority`` is the tenant's class.
    ``edit`` is the change that ``outgoing`` makes, None to forward the body as it came. ``model``
    and ``lora_name`` (an adapter named apart from it) are as the client sent them until the names
    are resolved.
    ``previous_id`` is the kept response that this one goes on from, and ``bound_to`` the replica that
    alone can serve the request, as it alone keeps that response ("" for none).
    """

    dialect: str
    model: str = ""
    is_stream: bool = False
    is_readable: bool = True
    output_tokens_max: int | None = None
    session_key: str = ""
    session_source: SessionSource = SessionSource.CHAIN
    parent_key: str | None = None
    chain: array[int] = _NO_CHAIN
    ends_bytes: array[int] = _NO_ENDS
    head_segments: int = 0
    n_messages: int = 0
    edit: Edit | None = None
    tenant: str = ""
    scope: int = 0
    priority: str = "normal"
    work: Work = Work.GENERATION
    lora_name: str = ""
    previous_id: str = ""
    bound_to: str = ""

    @property
    def is_turn(self) -> bool:
        """It generates: a turn of its session, that fills a cache."""
        return self.work is _GENERATION

    @property
    def prompt_bytes(self) -> int:
        """Canonical bytes of the whole prompt."""
        return self.ends_bytes[-1] if self.ends_bytes else 0


class Usage(Row):
    """Token counts an engine reported for one request; ``prompt_tokens`` includes cached ones.

    Not changed after it is built.
    """

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None


@dataclass(slots=True, frozen=True)
class StreamFault:
    """An error event inside a stream: the engine's own words and its status (503 = queue full)."""

    status: int
    message: str


class Tap(Protocol):
    """Follows one answer's body, passes on what the client is to get, and reads the usage.

    One tap serves one answer with status 200. It holds back at most one incomplete event.
    """

    @property
    def has_begun(self) -> bool:
        """The first model event (not a comment, not an error) has been seen."""

    @property
    def fault(self) -> StreamFault | None:
        """The first error event seen, before or after the beginning."""

    @property
    def is_complete(self) -> bool:
        """The answer's own end mark was seen (``[DONE]``, ``message_stop``, a whole JSON body)."""

    @property
    def usage(self) -> Usage | None:
        """What the engine reported so far; final once the body has ended."""

    @property
    def kept_id(self) -> str:
        """The id under which the replica keeps this answer, "" if it keeps none."""

    def feed(self, data: bytes) -> bytes:
        """Take the next body bytes; answer the bytes to pass on now (may be empty)."""

    def finish(self) -> bytes:
        """The body has ended; answer the bytes that were held back."""


class Dialect(Protocol):
    """One API's wire format."""

    name: str

    def read(self, body: bytes, headers: Headers) -> PromptFacts:
        """Turn a request into facts.

        Raises:
            ClientError: the body is not JSON (``bad-request``, with the place of the fault).
        """

    def outgoing(self, body: bytes, facts: PromptFacts) -> tuple[bytes, bool]:
        """The body to forward, and whether the usage event is to be stripped from the answer."""

    def tap(self, *, is_stream: bool, strip_usage: bool) -> Tap:
        """A follower for one answer."""

    def error_body(self, error: RouterError) -> bytes:
        """The error as this API's JSON body."""

    def error_event(self, error: RouterError) -> bytes:
        """The error as the events that end a stream of this API."""

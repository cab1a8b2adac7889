"""Whose request is this: headers first, then body fields, then the prompt itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from hashing.canonical import fingerprint
from router.dialect.base import SessionSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.dialect.base import Headers

KEY_LENGTH_MAX: Final = 128
"""Characters; a longer id is replaced by its fingerprint."""

_SESSION_HEADERS: Final = (
    b"modal-session-id",
    b"x-claude-code-session-id",
    b"x-dynamo-session-id",
    b"x-smg-routing-key",
    b"thread-id",  # Codex: a sub-agent's thread differs from the session it belongs to
    b"session-id",
    b"session_id",
    b"x-session-id",
    b"x-session-affinity",
    b"x-opencode-session",
    b"x-goose-session-id",
    b"x-codex-window-id",  # thread:generation; for who passes on nothing else of Codex
)
"""In order. Absent on purpose: x-request-id and x-client-request-id, which most clients make anew
for each request (Codex repeats its thread-id there), and x-correlation-id, which only load
generators keep: whoever needs it configures it."""

_PARENT_HEADERS: Final = (
    b"x-dynamo-parent-session-id",
    b"x-codex-parent-thread-id",
    b"x-parent-session-id",
)
_AGENT_HEADER: Final = b"x-claude-code-agent-id"
_PARENT_AGENT_HEADER: Final = b"x-claude-code-parent-agent-id"
"""Of a sub-agent that a sub-agent started."""
_WINDOW_HEADER: Final = b"x-codex-window-id"
_SUBAGENT_HEADER: Final = b"x-openai-subagent"
_SUBAGENTS_SESSION: Final = (b"session-id", b"session_id")
"""Codex: whose sub-agent a thread is, where it does not say so itself."""

_KNOWN: Final = frozenset(
    (
        *_SESSION_HEADERS,
        *_PARENT_HEADERS,
        _AGENT_HEADER,
        _PARENT_AGENT_HEADER,
        _SUBAGENT_HEADER,
    )
)

_BODY_FIELDS: Final = (
    "prompt_cache_key",
    "metadata",
    "previous_response_id",
    "session_id",
    "conversation_id",
)
"""In order; of ``metadata`` only the session part of ``user_id`` counts."""

_PERSON_FIELD: Final = "user"
"""Last: it names who asks, and one person has several conversations at once."""

_RESERVED: Final = ("chain:", "body:", "hash:")
"""Beginnings of keys made here; a client's id never begins so."""

_SESSION_PART: Final = re.compile(r"_session_([0-9A-Za-z-]{8,64})$")
_FIELD_BYTES_MAX: Final = 4096
_KEPT_MAX: Final = 4096
_KEPT_BYTES_MAX: Final = 1024
"""So many sessions' headers are kept, none of more bytes: 4 MB at the very most."""


class Identity(NamedTuple):
    """A session key, where it was read, and the key of the session it descends from."""

    key: str
    source: SessionSource
    parent_key: str | None = None


class Namer:
    """Reads whose a request is, as its client names it.

    ``session_header`` is a header whose value comes before all others, in lower case. What headers alone tell
    is kept for when the same ones come again.
    """

    __slots__ = ("_header", "_kept", "_watched")

    def __init__(self, session_header: bytes | None = None) -> None:
        self._header = session_header
        self._watched = _KNOWN if session_header is None else _KNOWN | {session_header}
        self._kept: dict[tuple[tuple[bytes, bytes], ...], Identity] = {}

    def in_headers(self, headers: Headers) -> Identity | None:
        """The session that a client's headers name, None if they name none.

        Keys are printable, never empty, and at most 257 characters long.
        """
        watched = self._watched
        lines = tuple([line for line in headers if line[0] in watched])
        identity = self._kept.get(lines)
        if identity is None:
            found = _keys_in(lines)
            named = _from_headers(found, self._header)
            if named is not None:
                identity = _within(found, *named)
                self._keep(lines, identity)
        return identity

    def in_body(
        self, headers: Headers, field: Callable[[str], msgspec.Raw], *, opening: str
    ) -> Identity | None:
        """The session that a body names whose headers name none, though they may tell of a part of it.

        ``opening`` tells a person's conversations apart where only the person is named. ``field`` answers a
        top-level member of the body by its name, an empty one if it is absent.
        """
        found = _keys_in([line for line in headers if line[0] in self._watched])
        named = _from_body(field)
        if named is not None:
            return _within(found, *named)
        person = _key_in(field(_PERSON_FIELD))
        return Identity(f"{person}/{opening}", SessionSource.BODY, person) if person else None

    def _keep(self, lines: tuple[tuple[bytes, bytes], ...], identity: Identity) -> None:
        if sum([len(value) for _, value in lines]) > _KEPT_BYTES_MAX:
            return
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        self._kept[lines] = identity


def _keys_in(lines: Headers) -> dict[bytes, str]:
    """The first good key of each header."""
    found: dict[bytes, str] = {}
    for name, value in lines:
        if name not in found and value:
            is_window = name == _WINDOW_HEADER
            key = safe_key(_text(value.partition(b":")[0] if is_window else value))
            if key:
                found[name] = key
    return found


def _within(found: dict[bytes, str], key: str, source: SessionSource) -> Identity:
    """A named session, or the part of it that a sub-agent is."""
    agent = found.get(_AGENT_HEADER)
    if agent is not None and source is not SessionSource.CONFIGURED_HEADER:
        above = found.get(_PARENT_AGENT_HEADER, agent)
        return Identity(f"{key}/{agent}", source, key if above == agent else f"{key}/{above}")
    named_by: tuple[bytes, ...] = _PARENT_HEADERS
    if _SUBAGENT_HEADER in found:
        named_by += _SUBAGENTS_SESSION
    parent = next((found[name] for name in named_by if name in found), None)
    return Identity(key, source, None if parent == key else parent)


def _from_headers(
    found: dict[bytes, str], session_header: bytes | None
) -> tuple[str, SessionSource] | None:
    if not found:
        return None
    if session_header is not None and session_header in found:
        return found[session_header], SessionSource.CONFIGURED_HEADER
    for name in _SESSION_HEADERS:
        if name in found:
            return found[name], SessionSource.HEADER
    return None


def _from_body(field: Callable[[str], msgspec.Raw]) -> tuple[str, SessionSource] | None:
    for name in _BODY_FIELDS:
        key = _key_in(field(name), is_metadata=name == "metadata")
        if key:
            return key, SessionSource.BODY
    return None


def _key_in(raw: msgspec.Raw, *, is_metadata: bool = False) -> str:
    """The key a raw member holds, "" if it holds none."""
    if not raw or len(memoryview(raw)) > _FIELD_BYTES_MAX:
        return ""
    value = _decoded(raw)
    text = _session_of_metadata(value) if is_metadata else value
    return safe_key(text) if isinstance(text, str) else ""


def _decoded(data: msgspec.Raw | str) -> Any:  # noqa: ANN401  # JSON of a client's making
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None


def _session_of_metadata(metadata: object) -> object:
    """The session part of Claude Code's ``metadata.user_id``, in either of its two forms."""
    user_id = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(user_id, str):
        return None
    if user_id.startswith("{"):
        fields = _decoded(user_id)
        return fields.get("session_id") if isinstance(fields, dict) else None
    match = _SESSION_PART.search(user_id)
    return match.group(1) if match else None


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def safe_key(text: str) -> str:
    """A client's id as a key: itself if short and printable, else its fingerprint; "" for none."""
    text = text.strip()
    if not text:
        return ""
    is_plain = len(text) <= KEY_LENGTH_MAX and text.isprintable()
    if is_plain and not text.startswith(_RESERVED):
        return text
    return f"hash:{fingerprint(text.encode('utf-8', 'surrogatepass'))}"


def chain_key(value: int) -> str:
    """The key of a session that only its prompt identifies."""
    return f"chain:{value:016x}"


def body_key(value: int) -> str:
    """The key of a request whose prompt cannot be read."""
    return f"body:{value:016x}"

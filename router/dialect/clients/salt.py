"""Keeping tenants apart: in sessions always, in the engine's prefix cache where that is asked for.

SGLang takes ``cache_salt`` on the OpenAI paths and on ``/generate``; prompts of different salts share
no page. ``/v1/messages`` has no such member (0.5.23), so it cannot be isolated.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

from hashing.chain import scoped
from router.dialect.body.splice import rebuilt

if TYPE_CHECKING:
    from router.dialect.base import PromptFacts

_MEMBER: Final = "cache_salt"
_SMALL_BYTES: Final = 64
"""An object of more bytes has a member, whatever blanks it has."""
_SALTED: Final = frozenset(
    {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/generate"}
)
_CACHELESS: Final = frozenset(
    {
        "/v1/messages/count_tokens",
        "/v1/tokenize",
        "/tokenize",
        "/v1/detokenize",
        "/detokenize",
    }
)
"""Paths that touch no prefix cache."""


def may_be_isolated(path: str) -> bool:
    """Whether requests of this path can be kept out of other tenants' prefixes."""
    return path in _SALTED or path in _CACHELESS or path.startswith("/v1/responses/")


def claimed(facts: PromptFacts, tenant: str, scope: int, *, is_isolated: bool) -> None:
    """Make the facts a tenant's: no session, and if isolated no prefix, is another tenant's.

    ``scope`` is the tenant as a number.
    """
    facts.tenant = tenant
    facts.scope = scope
    facts.session_key = f"{tenant}/{facts.session_key}"
    if facts.parent_key is not None:
        facts.parent_key = f"{tenant}/{facts.parent_key}"
    if is_isolated:
        facts.chain = scoped(facts.chain, scope)


def salt_of(scope: int) -> str:
    """A tenant's salt: the same in every router and after every start."""
    return hashlib.sha256(b"homeport-salt\0%d" % scope).hexdigest()[:32]


def salted(body: bytes, salt: str) -> bytes:
    """A JSON object's bytes with the tenant's salt; one that the client chose is mixed into it.

    The member is written last, where it wins over any that stands before it.
    """
    if b'"cache_salt"' not in body:
        return _with_member(body, salt)
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return _with_member(body, salt)
    own = fields.pop(_MEMBER, None)
    if own is None:
        return _with_member(body, salt)
    mixed = hashlib.sha256(salt.encode() + bytes(own)).hexdigest()[:32]
    fields[_MEMBER] = msgspec.Raw(msgspec.json.encode(mixed))
    return rebuilt(fields)


def _with_member(body: bytes, salt: str) -> bytes:
    end = body.rfind(b"}")  # of a JSON object the last non-blank byte
    view = memoryview(body)
    comma = b"" if end < _SMALL_BYTES and body[:end].strip() == b"{" else b","
    return b"".join((view[:end], comma, b'"cache_salt":"', salt.encode(), b'"', view[end:]))

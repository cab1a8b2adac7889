"""Names and chains made unreadable, so that equal ones stay equal.

A digest keyed by a secret salt cannot be guessed at by whoever has the recording and not the salt:
neither the text of a known system prompt nor a session's id can be looked up in it. The salt is
never written.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from router.recording.records import SEALED_BYTES

if TYPE_CHECKING:
    from array import array
    from hashlib import blake2b as _Digest  # noqa: N812  (the class behind the function)

_LINK_BYTES: Final = 8
_KNOWN_MAX: Final = 4096
"""Names remembered; all are forgotten when it is reached."""


class Seal:
    """Digests keyed by one salt, apart for each kind of name; 8 bytes each (BLAKE2b)."""

    __slots__ = ("_known_models", "_known_sessions", "_link", "_model", "_page", "_session")

    def __init__(self, salt: bytes) -> None:
        key = blake2b(salt).digest()  # any length of salt makes a key
        self._session, self._model, self._link, self._page = (
            blake2b(key=key, digest_size=SEALED_BYTES, person=kind)
            for kind in (b"session", b"model", b"link", b"page")
        )
        self._known_sessions: dict[str, bytes] = {}
        self._known_models: dict[str, bytes] = {}

    def session(self, key: str) -> bytes:
        """A session's key, or the key of the session it descends from."""
        return self._known_sessions.get(key) or _sealed(key, self._session, self._known_sessions)

    def model(self, name: str) -> bytes:
        """A model's name."""
        return self._known_models.get(name) or _sealed(name, self._model, self._known_models)

    def links(self, chain: array[int]) -> bytes:
        """The links of a chain, one after the other."""
        return _sealed_numbers(chain.tobytes(), self._link)

    def pages(self, pages: array[int]) -> bytes:
        """Pages of a cache, one after the other."""
        return _sealed_numbers(pages.tobytes(), self._page)


def _sealed_numbers(raw: bytes, begun: _Digest) -> bytes:
    parts: list[bytes] = []
    for at in range(0, len(raw), _LINK_BYTES):
        digest = begun.copy()
        digest.update(raw[at : at + _LINK_BYTES])
        parts.append(digest.digest())
    return b"".join(parts)


def _sealed(name: str, begun: _Digest, known: dict[str, bytes]) -> bytes:
    if len(known) >= _KNOWN_MAX:
        known.clear()
    digest = begun.copy()
    digest.update(name.encode("utf-8", "surrogatepass"))
    sealed = known[name] = digest.digest()
    return sealed


def name_of(sealed: bytes) -> str:
    """A sealed name as the text that stands for it: 16 hex digits."""
    return sealed.hex()

"""Compressed bodies made plain, within bounds: bytes in, bytes out.

A body is decoded in steps of bounded size, so that what it would grow to is noticed before it has.
"""

from __future__ import annotations

import zlib
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from router.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable


def _optional(name: str) -> Any:  # noqa: ANN401 - a module
    try:
        return import_module(name)
    except ImportError:
        return None


zstd: Final = _optional("backports.zstd")  # Python 3.14 has it as compression.zstd
_STEP_BYTES: Final = 256 * 1024
_SLICE_BYTES: Final = 64 * 1024
"""What is fed at once: the rest behind a member's end is copied for each member."""
_FREE_BYTES: Final = 1024 * 1024
"""Up to here no ratio is a bomb: a page of blanks shrinks a thousandfold."""
_MEMBERS_MAX: Final = 1024
_WINDOW_LOG_MAX: Final = 23  # RFC 9659: a window of at most 8 MiB
_FAULTS: Final = (zlib.error, EOFError, *(() if zstd is None else (zstd.ZstdError,)))
_DEFLATE_METHOD: Final = 8


class _Stream(Protocol):
    """One member of a body."""

    @property
    def eof(self) -> bool:
        """It is whole."""

    @property
    def unused(self) -> bytes:
        """What followed its end."""

    def feed(self, data: bytes) -> bytes:
        """At most a step of what the bytes decode to."""

    @property
    def is_hungry(self) -> bool:
        """Nothing more comes without more input."""


class _Zlib:
    """Any of the formats around deflate, by zlib's own number for them."""

    def __init__(self, window_bits: int) -> None:
        self._stream = zlib.decompressobj(window_bits)
        self._rest = b""
        self._is_full = False

    def feed(self, data: bytes) -> bytes:
        part = self._stream.decompress(self._rest + data, _STEP_BYTES)
        self._rest = self._stream.unconsumed_tail
        self._is_full = len(part) == _STEP_BYTES
        return part

    @property
    def is_hungry(self) -> bool:
        return not self._rest and not self._is_full

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused(self) -> bytes:
        return self._stream.unused_data


class _Zstd:
    """One frame of zstd."""

    def __init__(self) -> None:
        limit = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX}
        self._stream = zstd.ZstdDecompressor(options=limit)

    def feed(self, data: bytes) -> bytes:
        return cast("bytes", self._stream.decompress(data, _STEP_BYTES))

    @property
    def is_hungry(self) -> bool:
        return bool(self._stream.needs_input)

    @property
    def eof(self) -> bool:
        return bool(self._stream.eof)

    @property
    def unused(self) -> bytes:
        return cast("bytes", self._stream.unused_data)


def _gzip(_head: bytes) -> _Stream:
    return _Zlib(zlib.MAX_WBITS | 16)


def _deflate(head: bytes) -> _Stream:
    """Deflate in its zlib wrapping as the RFC has it, or bare as some clients send it."""
    is_wrapped = (
        len(head) > 1
        and head[0] & 0x0F == _DEFLATE_METHOD
        and int.from_bytes(head[:2], "big") % 31 == 0
    )
    return _Zlib(zlib.MAX_WBITS if is_wrapped else -zlib.MAX_WBITS)


def _zstd(_head: bytes) -> _Stream:
    return _Zstd()


_MAKERS: Final[dict[bytes, Callable[[bytes], _Stream]]] = {
    b"gzip": _gzip,
    b"x-gzip": _gzip,
    b"deflate": _deflate,
    **({} if zstd is None else {b"zstd": _zstd}),
}

CODINGS: Final = b", ".join(coding for coding in _MAKERS if coding != b"x-gzip")
"""The content codings that are read, as a header lists them."""


def is_read(coding: bytes) -> bool:
    """Whether bodies of this content coding (in lower case) are read."""
    return coding in _MAKERS


def decoded(body: bytes, coding: bytes, *, bytes_max: int, ratio_max: float) -> bytes:
    """A whole compressed body as it was before.

    ``bytes_max`` bounds what comes out, ``ratio_max`` that by the body's own size; the first MiB is
    free. Members and frames may follow each other, as their formats allow.

    Raises:
        ClientError: the body is no such thing (400), or would be too large (413).
    """
    return _Decoding(coding, min(bytes_max, max(_FREE_BYTES, int(len(body) * ratio_max)))).run(body)


class _Decoding:
    """One body on its way."""

    def __init__(self, coding: bytes, bytes_max: int) -> None:
        self._coding = coding
        self._bytes_max = bytes_max
        self._stream: _Stream | None = None
        self._parts: list[bytes] = []
        self._n_bytes = 0
        self._n_members = 0

    def run(self, body: bytes) -> bytes:
        try:
            for at in range(0, len(body), _SLICE_BYTES):
                data = body[at : at + _SLICE_BYTES]
                while data:
                    data = self._member(data)
        except _FAULTS as fault:
            raise self._broken(str(fault)) from None
        if self._stream is not None:
            raise self._broken("it ends too early")
        return b"".join(self._parts)

    def _member(self, data: bytes) -> bytes:
        """Decode up to the end of the data or of the member; answers what is left."""
        stream = self._stream
        if stream is None:
            stream = self._stream = self._next(data)
        self._take(stream.feed(data))
        while not stream.eof and not stream.is_hungry:
            self._take(stream.feed(b""))
        if not stream.eof:
            return b""
        self._stream = None
        return stream.unused

    def _next(self, head: bytes) -> _Stream:
        self._n_members += 1
        if self._n_members > (1 if self._coding == b"deflate" else _MEMBERS_MAX):
            raise self._broken("something follows its end")
        return _MAKERS[self._coding](head)

    def _take(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._n_bytes += len(part)
            if self._n_bytes > self._bytes_max:
                raise ClientError(
                    "too-large",
                    f"The {self._coding.decode()} body grows beyond {self._bytes_max} bytes when it"
                    " is decoded; shorten it, send it uncompressed, or raise the limit.",
                )

    def _broken(self, why: str) -> ClientError:
        return ClientError("bad-request", f"The body is not {self._coding.decode()}: {why}.")

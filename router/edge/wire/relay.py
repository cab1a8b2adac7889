"""One answer on its way to one client: whole, or as a stream framed for the client's version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from router.framing.writing import CONTINUE, LAST_CHUNK, chunk

if TYPE_CHECKING:
    from router.framing.events import RequestHead

HEARTBEAT: Final = b": waiting for the first event\n\n"
PING: Final = b'event: ping\ndata: {"type": "ping"}\n\n'
"""The same where the API has an event for it (Anthropic)."""
EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
SILENT_S: Final = 1.0
"""A stream without a byte for so long does not find out by itself whether its client is there."""

_BODILESS: Final = (204, 304)
_COMMENT: Final = b":\n\n"

_CLOSE: Final = b"connection: close\r\n"
_KEEP: Final = b"connection: keep-alive\r\n"
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"


class Client(Protocol):
    """The client's connection as an answer sees it."""

    def write(self, data: bytes) -> None:
        """Send; nothing happens on a connection that is gone."""

    def answered(self, *, keep_alive: bool) -> None:
        """The answer is whole; the connection is free for the next request, or closed."""

    def watch(self, reader: PausableReader | None) -> None:
        """Pause this reader while the client is slow."""

    @property
    def may_keep_alive(self) -> bool:
        """The client asked for another request on this connection and the door is open."""

    @property
    def is_paused(self) -> bool:
        """More is unsent than the high-water mark."""


class PausableReader(Protocol):
    """Where the bytes for a client come from."""

    def pause(self) -> None:
        """Stop reading."""

    def resume(self) -> None:
        """Read again."""


class Relay:
    """Writes one answer. Nothing is sent before :meth:`open` or :meth:`whole`."""

    __slots__ = (
        "_client",
        "_is_chunked",
        "_is_head",
        "_keep_alive",
        "_write",
        "is_http10",
        "is_open",
    )

    def __init__(self, client: Client, head: RequestHead) -> None:
        self._client = client
        self._write = client.write
        self.is_http10 = head.http_version == "1.0"
        self._is_head = head.method == b"HEAD"
        self._is_chunked = False
        self._keep_alive = False
        self.is_open = False

    @property
    def is_paused(self) -> bool:
        """The client has not taken what was sent to it."""
        return self._client.is_paused

    def whole(self, fields: bytes, body: bytes, *, keep_alive: bool = True) -> None:
        """Answer in one write; ``fields`` is the head without framing and blank line."""
        assert not self.is_open
        keep_alive = keep_alive and self._client.may_keep_alive
        self._client.write(
            b"%bcontent-length: %d\r\n%b\r\n%b"
            % (fields, len(body), self._connection(keep_alive), b"" if self._is_head else body)
        )
        self._client.answered(keep_alive=keep_alive)

    def bodiless(self, fields: bytes) -> None:
        """Answer with a status that never has a body (204, 304)."""
        keep_alive = self._client.may_keep_alive
        self._client.write(b"%b%b\r\n" % (fields, self._connection(keep_alive)))
        self._client.answered(keep_alive=keep_alive)

    def open(self, fields: bytes, data: bytes, *, is_last: bool = False) -> None:
        """Begin a stream: its head and first bytes in one write, and its end if ``is_last``.

        An HTTP/1.0 client is told the end by closing.
        """
        assert not self.is_open
        self.is_open = True
        self._is_chunked = not self.is_http10
        self._keep_alive = self._is_chunked and self._client.may_keep_alive
        framing = _CHUNKED if self._is_chunked else b""
        head = b"%b%b%b\r\n" % (fields, framing, self._connection(self._keep_alive))
        if is_last:
            self._client.write(head + self._framed(data) + self._last)
            self._client.answered(keep_alive=self._keep_alive)
        else:
            self._client.write(head + self._framed(data))

    def stream(self, fields: bytes, data: bytes, *, is_last: bool = False) -> None:
        """Begin a stream, or go on with one that comments have begun."""
        if not self.is_open:
            self.open(fields, data, is_last=is_last)
        elif is_last:
            self.end(data)
        else:
            self.send(data)

    def pass_on(
        self, fields: bytes, data: bytes, *, status: int, is_stream: bool, is_whole: bool
    ) -> None:
        """Begin a replica's answer, and end it if it is whole."""
        if is_stream or not is_whole:
            self.stream(fields, data, is_last=is_whole)
        elif status in _BODILESS:
            self.bodiless(fields)
        else:
            self.whole(fields, data)

    def send(self, data: bytes) -> None:
        """The next bytes of the stream; may be empty."""
        # The busiest line of the router: a chunk is framed here and not in a function of its own.
        if data:
            self._write(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)

    def end(self, data: bytes) -> None:
        """The last bytes of the stream.

        The connection stays what its head said it would be, also after a cut: a client that was
        told it may go on must not run into a close with its next request.
        """
        assert self.is_open
        self._client.write(self._framed(data) + self._last)
        self._client.answered(keep_alive=self._keep_alive)

    def tear(self, data: bytes) -> None:
        """Break off an answer that has no error events: closing without its end is the sign."""
        assert self.is_open
        self._client.write(self._framed(data))
        self._client.answered(keep_alive=False)

    def probe(self) -> None:
        """Send something harmless, so that a client that is gone answers with a reset."""
        if self.is_open:
            self.send(_COMMENT)
        elif not self.is_http10:
            self._client.write(CONTINUE)

    @property
    def _last(self) -> bytes:
        return LAST_CHUNK if self._is_chunked else b""

    def _framed(self, data: bytes) -> bytes:
        if not data:
            return b""
        return chunk(data) if self._is_chunked else data

    def _connection(self, keep_alive: bool) -> bytes:  # noqa: FBT001 - a private table of two rows
        if not keep_alive:
            return _CLOSE
        return _KEEP if self.is_http10 else b""

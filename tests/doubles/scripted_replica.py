"""A replica that does what a test says: bytes, silence, resets.

Each connection gets the next script; each request on it is a :class:`Call` that the script answers
with raw bytes. Pauses are made with events of the test, never by sleeping::

    async def script(call: Call) -> None:
        await call.send(HEAD)
        await go_on.wait()
        call.reset()

    async with ScriptedReplica(script) as replica:
        ...
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterator
    from types import TracebackType

    Script = Callable[["Call"], Awaitable[None]]


def events(*texts: str, done: bool = True) -> bytes:
    """Chat chunks as server-sent events, with the end mark."""
    out = [
        b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % t.encode() for t in texts
    ]
    return b"".join(out) + (b"data: [DONE]\n\n" if done else b"")


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    b"x-engine: scripted\r\n\r\n"
)
END = b"0\r\n\r\n"
BUSY_EVENT = (
    b'data: {"error":{"object":"error","message":"The request queue is full.",'
    b'"type":"SERVICE_UNAVAILABLE","param":null,"code":503}}\n\ndata: [DONE]\n\n'
)
BUSY_MESSAGE = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","type":"message",'
    b'"role":"assistant","content":[],"model":"m","usage":{"input_tokens":0,"output_tokens":0}}}\n\n'
    b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error",'
    b'"message":"The request queue is full."}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)
"""What SGLang streams on ``/v1/messages`` where its queue is full."""


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def stream(data: bytes) -> bytes:
    """A whole streamed answer."""
    return STREAM_HEAD + chunk(data) + END


def whole(body: bytes, *, status: bytes = b"200 OK", extra: bytes = b"") -> bytes:
    """A whole answer that is not streamed."""
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b" % (
        status,
        extra,
        len(body),
        body,
    )


@contextlib.contextmanager
def deaf_port() -> Iterator[int]:
    """A port where connecting never ends: nobody accepts, and the queue before it is full."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (first, second):
            filler.settimeout(0)
            filler.connect_ex(full.getsockname())
        yield full.getsockname()[1]


class Call:
    """One request that reached the replica."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes, number: int
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.head = head
        self.body = b""
        self.number = number
        self.is_reused = False

    async def read_body(self) -> None:
        """Take the body, as its content-length says."""
        length = int(self.header("content-length") or "0")
        self.body = await self._reader.readexactly(length)

    def header(self, name: str) -> str | None:
        """The value of a header of the request."""
        for line in self.head.decode("latin-1").split("\r\n")[1:]:
            key, _, value = line.partition(": ")
            if key == name:
                return value
        return None

    async def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self._writer.write(data)
        await self._writer.drain()

    def reset(self) -> None:
        """End the connection with a reset."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def close(self) -> None:
        """End the connection in good form."""
        self._writer.close()

    @property
    def is_gone(self) -> bool:
        """The router has closed the connection, as far as is known."""
        return self._reader.at_eof() or self._writer.is_closing()

    async def gone(self) -> None:
        """Wait until the router has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(65536):
                pass


class ScriptedReplica:
    """Listens on a port of its own; ``calls`` are the requests so far."""

    def __init__(
        self, script: Script, *, reads_body: bool = True, tls: ssl.SSLContext | None = None
    ) -> None:
        self.script = script
        self.calls: list[Call] = []
        self.n_connections = 0
        self.port = 0
        self._reads_body = reads_body
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, limit=1 << 26, ssl=self._tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        self.n_connections += 1
        n_requests = 0
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                call = Call(reader, writer, head[:-4], len(self.calls))
                call.is_reused = n_requests > 0
                n_requests += 1
                if self._reads_body:
                    await call.read_body()
                self.calls.append(call)
                await self.script(call)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._running.discard(task)
            writer.close()

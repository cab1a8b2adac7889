"""A client that sends and sees bytes, and reads answers with h11."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h11

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator


def chat(*, stream: bool = True, text: str = "hello") -> bytes:
    """A chat body."""
    return json.dumps(
        {"model": "m", "stream": stream, "messages": [{"role": "user", "content": text}]}
    ).encode()


def post(body: bytes, *, path: str = "/v1/chat/completions", extra: str = "") -> bytes:
    """A whole POST request."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: door\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n{extra}\r\n"
    )
    return head.encode() + body


@dataclass(slots=True)
class Answer:
    """One answer, whole."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_whole: bool


class RawClient:
    """One connection to the front door."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._h11 = h11.Connection(h11.CLIENT)

    async def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def read(self) -> Answer:
        """Read one answer to its end; ``is_whole`` is false if the connection ended before."""
        if self._h11.our_state is h11.IDLE:
            self._h11.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
            self._h11.send(h11.EndOfMessage())
        answer = Answer(0, {}, b"", is_whole=False)
        parts: list[bytes] = []
        with contextlib.suppress(h11.RemoteProtocolError):
            while True:
                event = self._h11.next_event()
                if event is h11.NEED_DATA:
                    self._h11.receive_data(await self._more())
                elif isinstance(event, h11.Response):
                    answer.status = event.status_code
                    answer.headers = {k.decode(): v.decode() for k, v in event.headers}
                elif isinstance(event, h11.Data):
                    parts.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    answer.is_whole = True
                    break
                elif isinstance(event, h11.ConnectionClosed):
                    break
        answer.body = b"".join(parts)
        if self._h11.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            self._h11.start_next_cycle()
        return answer

    async def read_until(self, mark: bytes) -> bytes:
        """Read raw bytes up to and with ``mark``."""
        return await self.reader.readuntil(mark)

    async def read_all(self) -> bytes:
        """Read raw bytes until the connection ends."""
        with contextlib.suppress(ConnectionError):
            return await self.reader.read()
        return b""

    async def is_closed(self) -> bool:
        """Wait for the end of the connection; true if nothing came before it."""
        return await self.read_all() == b""

    async def _more(self) -> bytes:
        try:
            return await self.reader.read(65536)
        except ConnectionError:
            return b""


@contextlib.asynccontextmanager
async def client_of(
    port: int, *, limit: int = 1 << 26, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawClient]:
    """A connection to the front door; a small ``limit`` makes a client that reads slowly."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit, ssl=tls)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()

"""The bench's own replica: answers generations with prebuilt bytes, as cheaply as Python can.

One process each: ``python -m bench.upstream whole|burst|paced|held``. It says where it listens on
standard output. A stream is written one event at a time, each with a write of its own, as an
engine's server does: in a burst as fast as they go, or on a fixed schedule.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from typing import Final, cast

import httptools
import uvloop
from typing_extensions import override

from bench.cases import EVENT_GAP_S, Answer, stream_events, whole_answer
from bench.conversations import MODEL

_SHORT_BYTES: Final = 4096
"""A request below it is answered whole even where streams are held: a router is asked if it is ready."""

_LATE_S: Final = 0.001
"""uvloop's timers count whole milliseconds."""


def _framed(data: bytes, kind: bytes) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: %d\r\ncontent-type: %b\r\n\r\n%b"
        % (len(data), kind, data)
    )


def _json(value: object) -> bytes:
    return _framed(json.dumps(value).encode(), b"application/json")


class Replica:
    """What all connections of one upstream share."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.inflight = 0
        self.whole = _framed(whole_answer(), b"application/json")
        head = (
            b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\n"
            b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        self.events = [b"%x\r\n%b\r\n" % (len(event), event) for event in stream_events()]
        self.events[0] = head + self.events[0]
        self.events.append(b"0\r\n\r\n")
        self._pages = {
            b"/server_info": _json({"max_total_num_tokens": 8_000_000}),
            b"/v1/models": _json({"object": "list", "data": [{"id": MODEL}]}),
        }

    def page(self, path: bytes) -> bytes:
        """The answer to a request that is no generation."""
        if path != b"/v1/loads":
            return self._pages.get(path) or _json({"status": "ok"})
        row = {
            "num_running_reqs": self.inflight,
            "num_waiting_reqs": 0,
            "num_waiting_uncached_tokens": 0,
        }
        return _json({"loads": [row]})


class Connection(asyncio.Protocol):
    """One connection from a router, or straight from the load generator."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._url = b""
        self._body_bytes = 0
        self._began_s = 0.0

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    @override
    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self._url = b""
        self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Called by the parser."""
        self._url += url

    def on_body(self, data: bytes) -> None:
        """Called by the parser, for each part of a body."""
        self._body_bytes += len(data)

    def on_message_complete(self) -> None:
        """Called by the parser: the request is here whole."""
        path = self._url.partition(b"?")[0]
        replica = self._replica
        if path != b"/v1/chat/completions":
            self._write(replica.page(path))
        elif replica.answer is Answer.WHOLE or (
            replica.answer is Answer.HELD and self._body_bytes < _SHORT_BYTES
        ):
            self._write(replica.whole)
        else:
            replica.inflight += 1
            self._began_s = self._loop.time()
            self._next(0)

    def _next(self, at: int) -> None:
        """Write one event and plan the next."""
        replica = self._replica
        if self._transport is None or at == len(replica.events):
            replica.inflight -= 1
            return
        self._write(replica.events[at])
        if replica.answer is Answer.HELD:
            return
        if replica.answer is Answer.BURST or at >= len(replica.events) - 2:
            self._loop.call_soon(self._next, at + 1)
        else:
            due_s = self._began_s + (at + 1) * EVENT_GAP_S
            self._loop.call_at(max(due_s, self._loop.time() + _LATE_S), self._next, at + 1)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


async def _serve(answer: Answer) -> None:
    replica = Replica(answer)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(replica), "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    print(f"upstream ready url=http://127.0.0.1:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(Answer(sys.argv[1])))

"""Requests and answers with something wrong with them, by seed; each carries marks of its own.

A mark is a number with its checksum, so that a mutation does not make one of another's.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

_MARK: Final = re.compile(rb"mk([0-9a-f]{8})([0-9a-f]{8})")

_TOKENS: Final = (
    *(b"\r\n", b"\n", b"\r", b"\x00", b" ", b"\t", b":", b";", b",", b"=", b"0", b"1", b"-", b"+"),
    *(b"\x0b", b"\xff", b"\x7f", b"{", b"}", b'"', b"[", b"]", b"null", b"\\u0000", b"\r\n\r\n"),
    *(b"0\r\n\r\n", b"ffffffffffffffff", b"10000000000000000", b"HTTP/1.0", b"HTTP/2.0", b"#"),
    *(b"gzip", b"chunked", b"identity", b"data: [DONE]\n\n", b"event: error\n", b"\n\n", b"://"),
)
_LINES: Final = (
    *(b"Transfer-Encoding: chunked", b"Content-Length: 5", b"Content-Length: 0", b"Host: b"),
    *(b"Connection: close", b"Connection: keep-alive", b"Connection: content-length, x-request-id"),
    *(b"Expect: 100-continue", b"Expect: x", b"Upgrade: h2c", b"Connection: Upgrade", b" folded"),
    *(b"Content-Encoding: gzip", b"Content-Encoding: br", b"Content-Type: text/plain"),
    *(b"X-Forwarded-For: 1.1.1.1", b"Traceparent: 00-1-2-3", b"Trailer: a", b"TE: trailers"),
    *(b"GET /health HTTP/1.1\r\nHost: a\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"),
)


def mark(number: int) -> bytes:
    """The mark of this number."""
    digits = b"%08x" % number
    return b"mk%b%08x" % (digits, zlib.crc32(digits))


def marks(data: bytes) -> set[int]:
    """The numbers whose marks stand in the data."""
    return {
        int(digits, 16)
        for digits, check in _MARK.findall(data)
        if b"%08x" % zlib.crc32(digits) == check
    }


def sound_request(dice: random.Random, own: bytes) -> bytes:
    """A request as clients send them."""
    kind = dice.randrange(12)
    if kind == 0:
        return b"GET /v1/models HTTP/1.1\r\nHost: a\r\nX-Request-Id: %b\r\n\r\n" % own
    text = own.decode()
    body = json.dumps(
        {
            "model": "m",
            "stream": kind % 2 == 0,
            "messages": [{"role": "user", "content": f"{text} {'x' * dice.randrange(60)} {text}"}],
        }
    ).encode()
    path = b"/v1/messages" if kind == 1 else b"/v1/chat/completions"
    lines = [b"POST %b HTTP/1.1" % path, b"Host: a", b"X-Request-Id: %b" % own]
    lines.append(b"X-Session-Id: %b" % own[-1:])
    if kind == 2:
        body = gzip.compress(body, 1)
        lines.append(b"Content-Encoding: gzip")
    if kind == 3:
        lines.append(b"Connection: keep-alive")
    if kind in (4, 5):
        lines.append(b"Transfer-Encoding: chunked")
        cut = dice.randrange(1, len(body))
        parts = [b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:cut], body[cut:])]
        body = b"".join(parts) + b"0\r\n\r\n"
    else:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def sound_answer(dice: random.Random, own: bytes) -> bytes:
    """An answer as replicas send them."""
    kind = dice.randrange(8)
    event = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % own
    body = event * dice.randrange(1, 4) + b"data: [DONE]\n\n"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-mark: %b\r\n" % own
    if kind < 3:
        cut = dice.randrange(1, len(body))
        parts = [b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:cut], body[cut:])]
        return head + b"transfer-encoding: chunked\r\n\r\n" + b"".join(parts) + b"0\r\n\r\n"
    if kind == 3:
        return head + b"\r\n" + body
    whole = b'{"choices":[],"usage":null,"mark":"%b"}' % own
    status = (b"200 OK", b"200 OK", b"503 Busy", b"400 Bad")[kind - 4]
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" if kind == 5 else b""
    return interim + b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(whole), whole)


def mutated(dice: random.Random, data: bytes) -> bytes:
    """The data with one to four things done to it."""
    out = bytearray(data)
    for _ in range(min(dice.randrange(1, 5), dice.randrange(1, 5))):
        kind = dice.randrange(9)
        if kind == 0:
            _insert_line(dice, out)
        elif kind == 1:
            _change_number(dice, out)
        elif kind == 2 and dice.randrange(3) == 0:
            del out[dice.randrange(len(out) + 1) :]
        else:
            _change_bytes(dice, out)
    return bytes(out)


def _change_bytes(dice: random.Random, out: bytearray) -> None:
    at, kind = dice.randrange(len(out) + 1), dice.randrange(6)
    if kind == 0:
        out[at : at + 1] = bytes([dice.randrange(256)])
    elif kind == 1 and at < len(out):
        out[at] ^= 1 << dice.randrange(8)
    elif kind == 2:
        del out[at : at + dice.randrange(1, 12)]
    elif kind == 3:
        out[at:at] = out[at : at + dice.randrange(1, 80)]
    else:
        token = dice.choice(_TOKENS)
        out[at : at + (len(token) if kind == 4 else 0)] = token


def _insert_line(dice: random.Random, out: bytearray) -> None:
    """A line, at the end of another or in its place."""
    at = out.find(b"\r\n", dice.randrange(max(1, min(len(out), 200))))
    if at >= 0:
        end = at if dice.randrange(3) else max(at, out.find(b"\r\n", at + 2))
        out[at:end] = b"\r\n" + dice.choice(_LINES)


def _change_number(dice: random.Random, out: bytearray) -> None:
    found = list(re.finditer(rb"\b[0-9a-f]{1,3}\b", out))
    if found:
        match = dice.choice(found)
        number = max(0, int(match[0], 16) + dice.choice((-2, -1, 1, 2, 10)))
        out[match.start() : match.end()] = dice.choice((b"%d", b"%x", b"0%d", b"+%d")) % number


def pieces(dice: random.Random, data: bytes) -> list[bytes]:
    """The data cut at up to three places."""
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randrange(4)))
    edges = [0, *cuts, len(data)]
    return [data[a:b] for a, b in pairwise(edges)]

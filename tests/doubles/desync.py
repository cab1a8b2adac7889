"""Requests that two readers could read differently, and answers that are none: by name."""

from __future__ import annotations

from typing import Final

CHAT: Final = "/v1/chat/completions"
BODY: Final = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
SMUGGLED: Final = (
    b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 57\r\n\r\n" % CHAT.encode() + BODY
)
CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"
_LENGTH: Final = b"Content-Length: 57\r\n"
_LAST: Final = b"0\r\n\r\n"


def request(
    fields: bytes = _LENGTH,
    body: bytes = BODY,
    *,
    line: bytes = b"POST %b HTTP/1.1" % CHAT.encode(),
    host: bytes = b"Host: a\r\n",
) -> bytes:
    return b"%b\r\n%b%b\r\n%b" % (line, host, fields, body)


def chunked(body: bytes) -> bytes:
    return request(CHUNKED, body)


def _te(value: bytes, name: bytes = b"Transfer-Encoding") -> bytes:
    return request(b"%b:%b\r\n" % (name, value), b"39\r\n%b\r\n" % BODY + _LAST)


def _cl(value: bytes) -> bytes:
    return request(b"Content-Length:%b\r\n" % value)


def _line(line: bytes, *, host: bytes = b"Host: a\r\n") -> bytes:
    return request(b"", b"", line=line, host=host)


LENGTHS: Final = {
    "cl-te": request(_LENGTH + CHUNKED, _LAST),
    "te-cl": request(CHUNKED + _LENGTH, _LAST),
    "cl-te-zero": request(b"Content-Length: 0\r\n" + CHUNKED, _LAST),
    "cl-twice": request(_LENGTH * 2),
    "cl-twice-other": request(_LENGTH + b"Content-Length: 0\r\n"),
    "cl-twice-case": request(_LENGTH + b"CONTENT-LENGTH: 57\r\n"),
    "cl-list": _cl(b" 57, 57"),
    "cl-list-other": _cl(b" 57, 0"),
    "cl-plus": _cl(b" +57"),
    "cl-minus": _cl(b" -57"),
    "cl-blank-inside": _cl(b" 5 7"),
    "cl-tab-inside": _cl(b" 5\t7"),
    "cl-zeros": _cl(b" 057"),
    "cl-hex": _cl(b" 0x39"),
    "cl-point": _cl(b" 57.0"),
    "cl-exponent": _cl(b" 5e1"),
    "cl-underscore": _cl(b" 5_7"),
    "cl-letter": _cl(b" 57a"),
    "cl-quoted": _cl(b' "57"'),
    "cl-empty": _cl(b""),
    "cl-wide-digits": _cl(" \uff15\uff17".encode()),
    "cl-overflow": _cl(b" 18446744073709551673"),
    "cl-long": _cl(b" " + b"9" * 400),
    "cl-blank-name": request(b"Content-Length : 57\r\n"),
    "cl-folded": request(b"Content-Length:\r\n 57\r\n"),
    "cl-nul": _cl(b" 57\x00"),
}
CODINGS: Final = {
    "te-unknown": _te(b" xchunked"),
    "te-identity": _te(b" identity"),
    "te-not-last": _te(b" chunked, identity"),
    "te-gzip-chunked": _te(b" gzip, chunked"),
    "te-twice": request(CHUNKED * 2, _LAST),
    "te-twice-other": request(CHUNKED + b"Transfer-Encoding: x\r\n", _LAST),
    "te-twice-other-first": request(b"Transfer-Encoding: x\r\n" + CHUNKED, _LAST),
    "te-vertical-tab": _te(b"\x0bchunked"),
    "te-form-feed": _te(b" \x0cchunked"),
    "te-tail": _te(b" chunked\x0b"),
    "te-quoted": _te(b' "chunked"'),
    "te-apostrophe": _te(b" 'chunked'"),
    "te-empty": _te(b""),
    "te-comma": _te(b" ,chunked"),
    "te-comma-after": _te(b" chunked,"),
    "te-parameter": _te(b" chunked;q=1"),
    "te-nul": _te(b" chunked\x00"),
    "te-cr": _te(b" chunked\r"),
    "te-cow": _te(b" cow"),
    "te-prefix": _te(b" chunk"),
    "te-bom": _te(b" \xef\xbb\xbfchunked"),
    "te-blank-name": _te(b" chunked", b"Transfer-Encoding "),
    "te-tab-name": _te(b" chunked", b"Transfer-Encoding\t"),
    "te-blank-before-name": _te(b" chunked", b" Transfer-Encoding"),
    "te-folded": request(b"X: y\r\n Transfer-Encoding: chunked\r\n", _LAST),
    "te-after-cr": request(b"X: y\rTransfer-Encoding: chunked\r\n", _LAST),
    "te-after-lf": request(b"X: y\nTransfer-Encoding: chunked\r\n", _LAST),
    "te-http-1.0": _te(b" chunked").replace(b"HTTP/1.1", b"HTTP/1.0"),
    "te-nul-name": _te(b" chunked", b"Transfer-Encoding\x00"),
}
CHUNKS: Final = {
    "chunk-lf": chunked(b"39\n%b\r\n" % BODY + _LAST),
    "chunk-lf-after": chunked(b"39\r\n%b\n" % BODY + _LAST),
    "chunk-last-lf": chunked(b"39\r\n%b\r\n0\n\n" % BODY),
    "chunk-cr": chunked(b"39\r%b\r0\r\r" % BODY),
    "chunk-ext-lf": chunked(b"39;a\n%b\r\n" % BODY + _LAST),
    "chunk-ext-cr": chunked(b"39;a\rb\r\n%b\r\n" % BODY + _LAST),
    "chunk-ext-nul": chunked(b"39;a\x00\r\n%b\r\n" % BODY + _LAST),
    "chunk-ext-empty": chunked(b"39;\r\n%b\r\n" % BODY + _LAST),
    "chunk-ext-blank": chunked(b"39 ;a\r\n%b\r\n" % BODY + _LAST),
    "chunk-ext-open-quote": chunked(b'39;a="\r\n%b\r\n' % BODY + _LAST),
    "chunk-blank-before": chunked(b" 39\r\n%b\r\n" % BODY + _LAST),
    "chunk-blank-after": chunked(b"39 \r\n%b\r\n" % BODY + _LAST),
    "chunk-plus": chunked(b"+39\r\n%b\r\n" % BODY + _LAST),
    "chunk-minus": chunked(b"-39\r\n%b\r\n" % BODY + _LAST),
    "chunk-0x": chunked(b"0x39\r\n%b\r\n" % BODY + _LAST),
    "chunk-underscore": chunked(b"3_9\r\n%b\r\n" % BODY + _LAST),
    "chunk-no-hex": chunked(b"3g\r\n%b\r\n" % BODY + _LAST),
    "chunk-empty-size": chunked(b"\r\n%b\r\n" % BODY + _LAST),
    "chunk-overflow": chunked(b"10000000000000039\r\n%b\r\n" % BODY + _LAST),
    "chunk-overflow-long": chunked(b"F" * 40 + b"\r\n" + BODY + b"\r\n" + _LAST),
    "chunk-longer": chunked(b"39\r\n%bx\r\n" % BODY + _LAST),
    "chunk-shorter": chunked(b"3b\r\n%b\r\n" % BODY + _LAST),
    "chunk-no-crlf": chunked(b"39\r\n%b" % BODY + _LAST),
    "trailer-length": chunked(b"39\r\n%b\r\n0\r\nContent-Length: 5\r\n\r\n" % BODY),
    "trailer-coding": chunked(b"39\r\n%b\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n" % BODY),
    "trailer-lf": chunked(b"39\r\n%b\r\n0\r\nA: b\n\r\n" % BODY),
    "trailer-nul": chunked(b"39\r\n%b\r\n0\r\nA: \x00\r\n\r\n" % BODY),
    "trailer-blank-name": chunked(b"39\r\n%b\r\n0\r\nA : b\r\n\r\n" % BODY),
}
LINES: Final = {
    "lf-only": request().replace(b"\r\n", b"\n"),
    "lf-once": request(b"X: y\n" + _LENGTH),
    "lf-at-the-end": request(_LENGTH).replace(b"57\r\n\r\n", b"57\r\n\n"),
    "cr-only": request().replace(b"\r\n", b"\r"),
    "cr-in-value": request(b"X: a\rb\r\n" + _LENGTH),
    "cr-cr-lf": request(b"X: a\r\r\n" + _LENGTH),
    "folded": request(b"X: a\r\n b\r\n" + _LENGTH),
    "folded-tab": request(b"X: a\r\n\tb\r\n" + _LENGTH),
    "folded-first": _line(b"POST /v1/chat/completions HTTP/1.1", host=b" Host: a\r\n"),
    "nul-in-name": request(b"X\x00: a\r\n" + _LENGTH),
    "nul-in-value": request(b"X: a\x00b\r\n" + _LENGTH),
    "control-in-value": request(b"X: a\x01b\r\n" + _LENGTH),
    "escape-in-value": request(b"X: a\x1bb\r\n" + _LENGTH),
    "del-in-value": request(b"X: a\x7fb\r\n" + _LENGTH),
    "blank-before-colon": request(b"X : a\r\n" + _LENGTH),
    "tab-before-colon": request(b"X\t: a\r\n" + _LENGTH),
    "no-colon": request(b"XY\r\n" + _LENGTH),
    "empty-name": request(b": y\r\n" + _LENGTH),
    "bracket-in-name": request(b"X(: y\r\n" + _LENGTH),
    "high-byte-in-name": request(b"X\xff: y\r\n" + _LENGTH),
    "tabs": _line(b"GET\t/health\tHTTP/1.1"),
    "blank-after-version": _line(b"GET /health HTTP/1.1 "),
    "blank-before-method": _line(b" GET /health HTTP/1.1"),
    "blank-in-target": _line(b"GET /health /x HTTP/1.1"),
    "http-0.9": b"GET /health\r\n\r\n",
    "http-0.9-blank": b"GET /health \r\n\r\n",
    "version-0.9": _line(b"GET /health HTTP/0.9"),
    "version-1.2": _line(b"GET /health HTTP/1.2"),
    "version-2.0": _line(b"GET /health HTTP/2.0"),
    "version-3": _line(b"GET /health HTTP/3"),
    "version-01.1": _line(b"GET /health HTTP/01.1"),
    "version-1.10": _line(b"GET /health HTTP/1.10"),
    "version-none": _line(b"GET /health HTTP/"),
    "version-small": _line(b"GET /health http/1.1"),
    "version-other": _line(b"GET /health HTTPS/1.1"),
    "http2-preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "tls": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
    "method-unknown": _line(b"FROB /health HTTP/1.1"),
    "method-small": _line(b"get /health HTTP/1.1"),
    "garbage": b"\x00\xff\x00\xff\r\n\r\n",
    "answer": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "json": BODY + b"\r\n\r\n",
}
TARGETS: Final = {
    "no-host": request(host=b""),
    "two-hosts": request(host=b"Host: a\r\nHost: a\r\n"),
    "two-hosts-other": request(host=b"Host: a\r\nHOST: b\r\n"),
    "host-blank": request(host=b"Host: a b\r\n"),
    "host-user": request(host=b"Host: u@a\r\n"),
    "host-path": request(host=b"Host: a/b\r\n"),
    "host-list": request(host=b"Host: a:80:90\r\n"),
    "host-port": request(host=b"Host: a:http\r\n"),
    "host-quote": request(host=b'Host: a"b\r\n'),
    "host-bracket": request(host=b"Host: [::1\r\n"),
    "host-high-byte": request(host=b"Host: \xff\r\n"),
    "connect": request(line=b"CONNECT a:80 HTTP/1.1"),
    "connect-path": request(line=b"CONNECT /v1/chat/completions HTTP/1.1"),
    "absolute-other-host": request(line=b"POST http://b/v1/chat/completions HTTP/1.1"),
    "absolute-other-port": request(line=b"POST http://a:81/v1/chat/completions HTTP/1.1"),
    "absolute-user": request(line=b"POST http://u@a/v1/chat/completions HTTP/1.1"),
    "absolute-no-host": request(line=b"POST http:///v1/chat/completions HTTP/1.1"),
    "absolute-ftp": request(line=b"POST ftp://a/v1/chat/completions HTTP/1.1"),
    "absolute-file": request(line=b"POST file:///v1/chat/completions HTTP/1.1"),
    "authority": request(line=b"POST a:80 HTTP/1.1"),
    "word": request(line=b"POST v1/chat/completions HTTP/1.1"),
    "star": request(line=b"POST * HTTP/1.1"),
    "empty": request(line=b"POST  HTTP/1.1"),
    "fragment": request(line=b"POST /v1/chat/completions#a HTTP/1.1"),
    "target-nul": request(line=b"POST /v1/chat/completions\x00 HTTP/1.1"),
    "target-control": request(line=b"POST /v1/chat/completions\x01 HTTP/1.1"),
    "target-high-byte": request(line=b"POST /v1/chat/completions\xff HTTP/1.1"),
    "upgrade-h2c": request(
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n" + _LENGTH
    ),
    "upgrade-websocket": request(b"Connection: upgrade\r\nUpgrade: websocket\r\n" + _LENGTH),
}
REQUESTS: Final = LENGTHS | CODINGS | CHUNKS | LINES | TARGETS
"""Each is answered 400, and nothing of it is forwarded."""

UNFINISHED: Final = {
    "chunk-missing-last": chunked(b"39\r\n%b\r\n" % BODY),
    "chunk-half-last": chunked(b"39\r\n%b\r\n0\r\n" % BODY),
    "chunk-huge": chunked(b"7fffffffffffffff\r\n%b\r\n" % BODY + _LAST),
    "length-longer": request(b"Content-Length: 58\r\n"),
    "head": request()[:40],
    "http-0.9-line": b"GET /health\r\n",
    "trailer": chunked(b"39\r\n%b\r\n0\r\nA: b\r\n" % BODY),
}
"""Each waits for more: it is answered 408 in time, and nothing of it is forwarded."""

_OK: Final = b"HTTP/1.1 200 OK\r\n"
_JSON: Final = b'{"choices":[]}'


def answer(
    fields: bytes = b"Content-Length: 14\r\n", body: bytes = _JSON, *, line: bytes = _OK
) -> bytes:
    return b"%b%b\r\n%b" % (line, fields, body)


_CHUNK: Final = b"e\r\n%b\r\n" % _JSON

ANSWERS: Final = {
    "cl-te": answer(b"Content-Length: 14\r\n" + CHUNKED, _CHUNK + _LAST),
    "te-cl": answer(CHUNKED + b"Content-Length: 14\r\n", _CHUNK + _LAST),
    "cl-twice": answer(b"Content-Length: 14\r\n" * 2),
    "cl-twice-other": answer(b"Content-Length: 14\r\nContent-Length: 2\r\n"),
    "cl-list": answer(b"Content-Length: 14, 14\r\n"),
    "cl-plus": answer(b"Content-Length: +14\r\n"),
    "cl-minus": answer(b"Content-Length: -1\r\n"),
    "cl-zeros": answer(b"Content-Length: 014\r\n"),
    "cl-hex": answer(b"Content-Length: 0xe\r\n"),
    "cl-empty": answer(b"Content-Length:\r\n"),
    "cl-overflow": answer(b"Content-Length: 18446744073709551630\r\n"),
    "te-unknown": answer(b"Transfer-Encoding: x\r\n"),
    "te-identity": answer(b"Transfer-Encoding: identity\r\n"),
    "te-gzip": answer(b"Transfer-Encoding: gzip, chunked\r\n", _CHUNK + _LAST),
    "te-twice": answer(CHUNKED * 2, _CHUNK + _LAST),
    "te-http-1.0": answer(CHUNKED, _CHUNK + _LAST, line=b"HTTP/1.0 200 OK\r\n"),
    "chunk-lf": answer(CHUNKED, b"e\n%b\n0\n\n" % _JSON),
    "chunk-longer": answer(CHUNKED, b"e\r\n%bx\r\n" % _JSON + _LAST),
    "chunk-overflow": answer(CHUNKED, b"F" * 20 + b"\r\n" + _JSON),
    "chunk-no-hex": answer(CHUNKED, b"zz\r\n" + _JSON),
    "lf-only": answer().replace(b"\r\n", b"\n"),
    "lf-once": answer(b"X: y\nContent-Length: 14\r\n"),
    "cr-in-value": answer(b"X: a\rSet-Cookie: b\r\nContent-Length: 14\r\n"),
    "folded": answer(b"X: a\r\n b\r\nContent-Length: 14\r\n"),
    "nul-in-value": answer(b"X: a\x00\r\nContent-Length: 14\r\n"),
    "blank-before-colon": answer(b"X : a\r\nContent-Length: 14\r\n"),
    "no-colon": answer(b"XY\r\nContent-Length: 14\r\n"),
    "version-0.9": answer(line=b"HTTP/0.9 200 OK\r\n"),
    "version-1.2": answer(line=b"HTTP/1.2 200 OK\r\n"),
    "version-2": answer(line=b"HTTP/2.0 200 OK\r\n"),
    "status-0": answer(line=b"HTTP/1.1 000 OK\r\n"),
    "status-99": answer(line=b"HTTP/1.1 099 OK\r\n"),
    "status-600": answer(line=b"HTTP/1.1 600 OK\r\n"),
    "status-999": answer(line=b"HTTP/1.1 999 OK\r\n"),
    "status-short": answer(line=b"HTTP/1.1 20 OK\r\n"),
    "status-long": answer(line=b"HTTP/1.1 2000 OK\r\n"),
    "status-word": answer(line=b"HTTP/1.1 OK\r\n"),
    "switching": answer(
        b"Upgrade: h2c\r\nConnection: upgrade\r\n", b"", line=b"HTTP/1.1 101 Switching\r\n"
    ),
    "switching-bare": answer(b"", b"", line=b"HTTP/1.1 101 Switching\r\n"),
    "head-large": answer(b"X: " + b"y" * 70_000 + b"\r\nContent-Length: 14\r\n"),
    "head-many": answer(b"X: y\r\n" * 300 + b"Content-Length: 14\r\n"),
    "interim-for-ever": b"HTTP/1.1 103 Early\r\nX: y\r\n\r\n" * 3_000,
    "request": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "garbage": b"\x00\xff garbage\r\n\r\n",
    "body-only": _JSON,
    "tls": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
}
"""Each is answered 502, whatever status it claims."""

CUT_ANSWERS: Final = {
    "nothing": b"",
    "half-head": _OK + b"Content-Le",
    "half-body": answer(body=_JSON[:5]),
    "half-chunk": answer(CHUNKED, _CHUNK[:7]),
    "no-last-chunk": answer(CHUNKED, _CHUNK),
    "half-last-chunk": answer(CHUNKED, _CHUNK + b"0\r\n"),
    "interim-only": b"HTTP/1.1 100 Continue\r\n\r\n",
}
"""Each ends there, and is answered 502 too."""

"""A DNS server on loopback over UDP, whose records a test changes while it answers.

``with NameServer() as names``: ``names.a["x.test"] = ["10.0.0.1"]``; ``names.address`` is ADDRESS:PORT.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Self

from dnslib import AAAA, QTYPE, RCODE, RR, SRV, A, DNSRecord
from dnslib.server import DNSLogger, DNSServer

if TYPE_CHECKING:
    from types import TracebackType

    from dnslib.server import DNSHandler


def _unsaid(*_: object) -> None:
    """Nobody reads the server's log."""


class NameServer:
    """Names and their records; a name in none of the tables does not exist.

    ``srv`` has (priority, weight, port, target). ``fails`` answers SERVFAIL to these kinds, ``is_silent``
    never answers. ``n_asked`` counts questions by kind.
    """

    def __init__(self) -> None:
        self.a: dict[str, list[str]] = {}
        self.aaaa: dict[str, list[str]] = {}
        self.srv: dict[str, list[tuple[int, int, int, str]]] = {}
        self.ttl_s = 0
        self.fails: set[str] = set()
        self.is_silent = False
        self.n_asked: Counter[str] = Counter()
        self._let_go = threading.Event()
        self._server = DNSServer(self, address="127.0.0.1", port=0, logger=DNSLogger(logf=_unsaid))
        self._server.server.handle_error = _unsaid  # who was never answered may be gone at the end

    @property
    def address(self) -> str:
        """Where it listens."""
        host, port = self._server.server.server_address[:2]
        return f"{host}:{port}"

    def resolve(self, request: DNSRecord, _: DNSHandler) -> DNSRecord:
        """Answer one question; dnslib calls it in a thread a question."""
        name, kind = str(request.q.qname).rstrip("."), QTYPE[request.q.qtype]
        self.n_asked[kind] += 1
        if self.is_silent:
            self._let_go.wait()
        reply = request.reply()
        if kind in self.fails:
            reply.header.rcode = RCODE.SERVFAIL
            return reply
        rows = {
            "A": [A(text) for text in self.a.get(name, ())],
            "AAAA": [AAAA(text) for text in self.aaaa.get(name, ())],
            "SRV": [
                SRV(priority, weight, port, target)
                for priority, weight, port, target in self.srv.get(name, ())
            ],
        }.get(kind, [])
        for row in rows:
            reply.add_answer(RR(name, request.q.qtype, ttl=self.ttl_s, rdata=row))
        if not any(name in table for table in (self.a, self.aaaa, self.srv)):
            reply.header.rcode = RCODE.NXDOMAIN
        return reply

    def __enter__(self) -> Self:
        self._server.start_thread()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._let_go.set()
        self._server.stop()
        self._server.server.server_close()

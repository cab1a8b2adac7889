"""Logs: an event's name, then key=value. One line a request at info, never a word of a prompt."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

from router.state.health import Event, State

if TYPE_CHECKING:
    from router.obs.metrics import Counts
    from router.state.history import RequestRecord
    from router.tenants.accounts import Account
    from router.tenants.gate import Gate

_FORMAT: Final = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s"
_access: Final = logging.getLogger("homeport.access")
_fleet: Final = logging.getLogger("homeport.fleet")


def configure(level: str) -> None:
    """Send the router's logs to standard error from ``level`` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT, datefmt="%Y-%m-%dT%H:%M:%S"))
    root = logging.getLogger("homeport")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


def quoted(value: str) -> str:
    """A value for a log line: quoted if it holds blanks, quotes or control characters."""
    return value if value.isprintable() and " " not in value and '"' not in value else repr(value)


def state_changed(replica_id: str, before: State, now: State, cause: Event) -> None:
    """A replica changed its state: worth a warning unless it became ready or was told to drain."""
    is_expected = now is State.READY or cause is Event.DRAIN
    _fleet.log(
        logging.INFO if is_expected else logging.WARNING,
        "replica-state replica=%s before=%s now=%s cause=%s",
        replica_id,
        before,
        now,
        cause,
    )


class Observer:
    """Told of each request's end by the edge: counts it, and writes its line."""

    def __init__(self, counts: Counts, *, access_log: bool, gate: Gate | None = None) -> None:
        self._counts = counts
        self._gate = gate
        self._writes = access_log and _access.isEnabledFor(logging.INFO)

    def finished(self, record: RequestRecord) -> None:
        """A placed request is over."""
        self._counts.finished(record)
        if record.tenant and (account := self._account(record.tenant)) is not None:
            account.count(
                str(record.outcome),
                prompt_tokens=record.reported_prompt_tokens or 0,
                cached_tokens=record.reported_cached_tokens or 0,
                output_tokens=record.output_tokens or 0,
            )
        if self._writes:
            _access.info(
                "request session=%s source=%s tenant=%s dialect=%s model=%s stream=%d replica=%s reason=%s "
                "tries=%d prompt=%s predicted=%d cached=%s output=%s ttft_s=%s duration_s=%.3f "
                "outcome=%s error=%s id=%s trace=%s",
                quoted(record.session_key),
                record.session_source,
                record.tenant or "-",
                record.dialect,
                quoted(record.model),
                record.is_stream,
                record.replica_id,
                record.reason,
                record.n_tries,
                _or_dash(record.reported_prompt_tokens),
                record.predicted_cached_tokens,
                _or_dash(record.reported_cached_tokens),
                _or_dash(record.output_tokens),
                "-" if record.ttft_s is None else f"{record.ttft_s:.3f}",
                record.duration_s,
                record.outcome,
                record.error_code or "-",
                quoted(record.request_id) or "-",
                record.trace_id or "-",
            )

    def turned_away(self, *, code: str, dialect: str, target: str, tenant: str = "") -> None:
        """The router answered a request itself, without placing it."""
        self._counts.turned_away[code] += 1
        if tenant and (account := self._account(tenant)) is not None:
            account.refused[code] += 1
        if self._writes:
            _access.info(
                "turned-away code=%s dialect=%s tenant=%s target=%s",
                code,
                dialect,
                tenant or "-",
                quoted(target[:200]),
            )

    def noted(self, event: str) -> None:
        """A request could not be served at once: counts what was done about it."""
        self._counts.pressure[event] += 1

    def _account(self, tenant: str) -> Account | None:
        return None if self._gate is None else self._gate.accounts.get(tenant)


def _or_dash(value: int | None) -> int | str:
    return "-" if value is None else value

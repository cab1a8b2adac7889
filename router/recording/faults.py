"""Errors as a recording has them: the class and the code that the core decides by, no words."""

from __future__ import annotations

from typing import Final

from router.errors import (
    CODES,
    ClientError,
    ConnectFailed,
    FirstEventTimeout,
    Refused,
    RouterError,
    StreamStalled,
    UpstreamError,
    UpstreamProtocol,
    UpstreamStatus,
)
from router.recording.errors import RecordingError

_CLASSES: Final[dict[str, type[RouterError]]] = {
    kind.__name__: kind
    for kind in (
        RouterError,
        ClientError,
        Refused,
        UpstreamError,
        ConnectFailed,
        FirstEventTimeout,
        StreamStalled,
        UpstreamProtocol,
        UpstreamStatus,
    )
}


def fault_of(error: RouterError) -> str:
    """The name of an error's class, or of the nearest one above it that a recording knows."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _CLASSES)


def status_of(error: RouterError | None) -> int | None:
    """The status that a replica answered, where an error is that."""
    return error.http_status if isinstance(error, UpstreamStatus) else None


def error_like(fault: str, code: str, http_status: int | None = None) -> RouterError:
    """An error of this class and code, and of this status where it is not the code's own.

    Raises:
        RecordingError: no class has this name, or nothing has this code.
    """
    kind = _CLASSES.get(fault)
    if kind is None or code not in CODES:
        raise RecordingError(f"it names the error {fault} {code}, which this version does not know")
    return kind(code, "recorded", http_status=http_status)


def upstream_error_like(fault: str, code: str, http_status: int | None = None) -> UpstreamError:
    """The same for an error that is a replica's.

    Raises:
        RecordingError: it is not known, or is no replica's.
    """
    error = error_like(fault, code, http_status)
    if not isinstance(error, UpstreamError):
        raise RecordingError(f"it blames a replica for the error {fault} {code}")
    return error

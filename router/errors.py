"""Errors of the front door, one tree.

::

    RouterError
      ClientError          bad-request, unknown-path, unknown-model, unknown-response,
                           method-not-allowed, bad-content-type,
                           too-large, headers-too-large, request-timeout,
                           upgrade-refused, expectation-failed, loop-detected,
                           bad-api-key, model-not-allowed, path-not-allowed
      Refused              no-replica-ready, saturated, shutting-down
        AwaitsTurn         awaits-turn
        TenantLimit        tenant-limit
      UpstreamError
        ConnectFailed      connect-failed, connect-timeout
        FirstEventTimeout  first-event-timeout, replica-stalled
        StreamStalled      stream-stalled
        UpstreamProtocol   bad-upstream-response, stream-cut
        UpstreamStatus     upstream-status: the replica's own answer, relayed unchanged
    ConfigError            exit 2: names the field, the value and its source

A client that goes away is an outcome (``client-gone``), not an error. A class exists only where
some code catches it apart; otherwise a new ``code`` on an existing class is enough. Every code has
a row in ``docs/errors.md``, which a test compares with :data:`CODES`.
"""

from __future__ import annotations

from typing import Final

_OVER_MOST: Final = 0.5


class RouterError(Exception):
    """An error with a stable code that a client can be shown.

    ``code`` is kebab-case and never changes its meaning: metric label, log field and the
    ``x-homeport-error`` header. ``message`` is for the person who reads it: what happened, which
    value, what to do. ``retry_after_s`` is set where waiting helps.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        http_status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.http_status = CODES[code] if http_status is None else http_status
        self.retry_after_s = retry_after_s


class ClientError(RouterError):
    """The request cannot be served as it was sent; sending it again does not help."""


class Refused(RouterError):
    """No replica can take the request now; ``retry_after_s`` says when to come back."""


class AwaitsTurn(Refused):
    """The replica chosen for it, ``replica_id``, computes another long prompt first.

    Told only to a caller who said that the request may wait for that; no client sees it. ``new_tokens`` are to be
    computed of its prompt; ``is_short_first``: the engine there takes prompts with the fewest such tokens first.
    ``fill_ratio``: what lives in the fleet over what its caches hold.
    """

    def __init__(
        self,
        replica_id: str,
        *,
        retry_after_s: float,
        new_tokens: int,
        is_short_first: bool,
        fill_ratio: float,
    ) -> None:
        what = f"{replica_id} computes another long prompt first; try again."
        super().__init__("awaits-turn", what, retry_after_s=retry_after_s)
        self.replica_id = replica_id
        self.new_tokens = new_tokens
        self.is_short_first = is_short_first
        self.fill_ratio = fill_ratio

    @property
    def place(self) -> int:
        """The least goes first, of equals the oldest: the door has the order of the engine."""
        return self.new_tokens if self.is_short_first else 0

    def allowed_s(self, *, most_s: float, short_first_s: float) -> float:
        """How long it may wait in all: ``most_s``, or less where the engine itself lets short prompts pass.

        There it is ``short_first_s``, and the more the more lives than fits, ``most_s`` at 1.5 times: each long prompt that
        is computed pushes others out then, and who waits keeps those alive that run.
        """
        if not self.is_short_first:
            return most_s
        over = max(0.0, self.fill_ratio - 1.0) / _OVER_MOST
        return min(most_s, max(short_first_s, most_s * over**3))


class TenantLimit(Refused):
    """The tenant has used up what it may; ``retry_after_s`` is when its own bucket has room again."""


class UpstreamError(RouterError):
    """A replica failed this request."""


class ConnectFailed(UpstreamError):
    """The replica could not be reached, or reset a new connection before any byte."""


class FirstEventTimeout(UpstreamError):
    """The replica took the request and sent no event in time; it may have started."""


class StreamStalled(UpstreamError):
    """The stream had begun and then sent nothing for too long."""


class UpstreamProtocol(UpstreamError):
    """The replica answered something that is not HTTP, or cut its answer off."""


class UpstreamStatus(UpstreamError):
    """The replica answered an error of its own, as a status or as the first event."""


class ConfigError(Exception):
    """A setting is unknown or impossible; the message names field, value and source."""


CODES: Final[dict[str, int]] = {
    "bad-request": 400,
    "bad-content-type": 415,
    "unknown-path": 404,
    "unknown-model": 404,
    "unknown-response": 404,
    "method-not-allowed": 405,
    "request-timeout": 408,
    "too-large": 413,
    "headers-too-large": 431,
    "expectation-failed": 417,
    "upgrade-refused": 400,
    "loop-detected": 508,
    "bad-api-key": 401,
    "model-not-allowed": 403,
    "path-not-allowed": 403,
    "tenant-limit": 429,
    "no-replica-ready": 503,
    "saturated": 503,
    "awaits-turn": 503,
    "shutting-down": 503,
    "connect-failed": 502,
    "connect-timeout": 504,
    "first-event-timeout": 504,
    "replica-stalled": 504,
    "stream-stalled": 504,
    "bad-upstream-response": 502,
    "stream-cut": 502,
    "upstream-status": 502,
    "internal": 500,
}
"""Every stable code and the HTTP status it is answered with (before the first event)."""

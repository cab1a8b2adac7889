"""Who is asking, and how a refusal has to look for that agent to try again.

One row an agent. What each of them retries on is in ``docs/agents.md``, with its sources.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from router.errors import ClientError, Refused, RouterError, UpstreamError

if TYPE_CHECKING:
    from router.dialect.base import Headers

BUSY: Final = frozenset((429, 503, 529))
"""Statuses that say: not now. They mean no fault of who answers so."""

_TRANSIENT: Final = frozenset((*BUSY, 502, 504))
_SDK_WAIT_S_MAX: Final = 60.0
"""The openai and anthropic SDKs take a longer ``Retry-After`` for none, and come back at once."""

_NEVER_AGAIN: Final = "loop-detected"
_LIMIT: Final = "tenant-limit"


@dataclass(slots=True, frozen=True)
class Manners:
    """How one agent is refused.

    ``busy_status`` answers what waiting cures (all replicas full, none ready, a router that shuts
    down), ``limit_status`` a tenant over its limit, ``fault_status`` a replica that failed; None
    leaves the status as it is. ``ends_turn``: the agent soon gives up on its whole turn, so its
    request is rather held. ``says_ms``: it reads ``retry-after-ms``. ``is_sdk``: it reads
    ``x-should-retry``, and a ``Retry-After`` of at most a minute.
    """

    name: str
    busy_status: int | None = None
    limit_status: int | None = None
    fault_status: int | None = None
    ends_turn: bool = False
    says_ms: bool = False
    is_sdk: bool = False

    def told(self, error: RouterError) -> RouterError:
        """The error with the status and the time that this agent acts on; the same code."""
        status = self.status(error)
        wait_s = error.retry_after_s
        if self.is_sdk and wait_s is not None:
            wait_s = min(wait_s, _SDK_WAIT_S_MAX)
        if status == error.http_status and wait_s == error.retry_after_s:
            return error
        return type(error)(error.code, error.message, http_status=status, retry_after_s=wait_s)

    def status(self, error: RouterError) -> int:
        """What this error is answered with."""
        status = error.http_status
        if isinstance(error, ClientError) or status not in _TRANSIENT:
            return status
        if error.code == _LIMIT:
            return self.limit_status or status
        if isinstance(error, Refused) or status in BUSY:
            return self.busy_status or status
        return self.fault_status or status

    def fields(self, error: RouterError) -> bytes:
        """Header lines that this agent reads besides ``Retry-After``; ``error`` as it was told."""
        lines = b""
        if self.is_sdk:
            if error.code == _NEVER_AGAIN:
                lines = b"x-should-retry: false\r\n"
            elif isinstance(error, (Refused, UpstreamError)) and error.http_status in _TRANSIENT:
                lines = b"x-should-retry: true\r\n"
        if self.says_ms and error.retry_after_s is not None:
            lines += b"retry-after-ms: %d\r\n" % max(0, math.ceil(error.retry_after_s * 1000.0))
        return lines


CLAUDE_CODE: Final = Manners("claude-code", busy_status=529, limit_status=429, is_sdk=True)
CODEX: Final = Manners("codex", busy_status=503, limit_status=503, ends_turn=True)
OPENCODE: Final = Manners("opencode", says_ms=True)
CLINE: Final = Manners("cline", busy_status=429, limit_status=429, fault_status=429)
RESPONSES: Final = Manners("responses", busy_status=503, limit_status=503)
SDK: Final = Manners("sdk", is_sdk=True)
OTHERS: Final = Manners("others")

_BY_USER_AGENT: Final = (
    (b"claude-cli/", CLAUDE_CODE),
    (b"codex", CODEX),  # codex_cli_rs, codex_exec, codex-tui, codex_vscode
    (b"opencode/", OPENCODE),
    (b"cline/", CLINE),
    (b"openai/", SDK),
    (b"asyncopenai/", SDK),
    (b"anthropic/", SDK),
    (b"asyncanthropic/", SDK),
)
"""Beginnings of the user agent, in lower case."""

_BY_HEADER: Final = {
    b"x-claude-code-session-id": (b"", CLAUDE_CODE),
    b"x-codex-window-id": (b"", CODEX),
    b"x-openai-subagent": (b"", CODEX),
    b"originator": (b"codex", CODEX),
    b"x-opencode-session": (b"", OPENCODE),
    b"x-title": (b"cline", CLINE),
}
"""Headers that only one agent sends, with how the value begins: for those behind a gateway that
has a user agent of its own."""

_RESPONSES: Final = b"/v1/responses"
_SDK_MARK: Final = b"x-stainless-"


def manners_of(headers: Headers, path: bytes = b"") -> Manners:
    """Who is asking, by its user agent, else by a header of its own, else by its SDK's.

    What asks at ``/v1/responses`` without an SDK's marks may be a relative of Codex, and end its
    turn on the same statuses; whether it is as impatient is not known, so it is not held.
    """
    agent: Manners | None = None
    is_sdk = False
    for name, value in headers:
        named = _named(name, value)
        if named is SDK:
            is_sdk = True
        elif named is not None:
            if name == b"user-agent":
                return named
            agent = agent or named
    if agent is not None:
        return agent
    if is_sdk:
        return SDK
    return RESPONSES if path == _RESPONSES else OTHERS


def told_to(headers: Headers, path: str, error: RouterError) -> tuple[RouterError, bytes]:
    """An error as the asking agent is told it, and the header lines that go with it."""
    manners = manners_of(headers, path.encode("ascii", "replace"))
    told = manners.told(error)
    return told, manners.fields(told)


def _named(name: bytes, value: bytes) -> Manners | None:
    """Whom one header line names."""
    if name == b"user-agent":
        text = value.lower()
        return next((who for start, who in _BY_USER_AGENT if text.startswith(start)), None)
    if name.startswith(_SDK_MARK):
        return SDK
    start, who = _BY_HEADER.get(name, (b"", None))
    return who if value.lower().startswith(start) else None

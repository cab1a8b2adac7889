"""What operators changed: who, when, why, from what to what. One log line each, and the newest in memory."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from router.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from aiohttp import web

_log = logging.getLogger("homeport.operator")

CHANGES_MAX: Final = 1_000
"""Kept; about 1 KB each."""

ACTOR_HEADER: Final = "x-homeport-actor"
REASON_HEADER: Final = "x-homeport-reason"
RELAYED: Final = "homeport-relayed"
"""Set on a request that repeats a change which another worker of this router has made and counted."""
_ACTOR_MAX: Final = 128
_REASON_MAX: Final = 500


@dataclass(slots=True, frozen=True)
class Author:
    """Who asked for a change, and why as far as they said; ``is_relayed``: another worker has counted it."""

    who: str
    why: str | None = None
    is_relayed: bool = False


@dataclass(slots=True, frozen=True)
class Change:
    """One change, numbered from the start of the process."""

    number: int
    at_s: float
    event: str
    replica: str | None
    session: str | None
    before: dict[str, Any]
    after: dict[str, Any]
    author: Author


def author_of(request: web.Request, why: str | None = None) -> Author:
    """Who asks and why, by the headers; without one the client's address. ``why`` of the body goes first.

    Raises:
        ClientError: ``bad-request``: a header is too long or not text.
    """
    who = _text(request, ACTOR_HEADER, _ACTOR_MAX) or request.remote or "unknown"
    reason = why or _text(request, REASON_HEADER, _REASON_MAX) or None
    return Author(who, reason, is_relayed=bool(request.get(RELAYED)))


def _text(request: web.Request, name: str, length_max: int) -> str:
    text = request.headers.get(name, "").strip()
    if len(text) > length_max or not text.isprintable():
        raise ClientError(
            "bad-request", f"{name}: must be printable text of at most {length_max} characters"
        )
    return text


class Changes:
    """The newest changes, and a count of all by event."""

    def __init__(self, counts: MutableMapping[str, int], now_s: Callable[[], float]) -> None:
        self._counts = counts
        self._now_s = now_s
        self._kept: deque[Change] = deque(maxlen=CHANGES_MAX)
        self._number = 0

    def note(
        self,
        event: str,
        author: Author,
        *,
        before: dict[str, Any],
        after: dict[str, Any],
        replica: str | None = None,
        session: str | None = None,
    ) -> None:
        """A change was made; nothing is noted where nothing is different now."""
        if before == after:
            return
        self._number += 1
        self._kept.append(
            Change(self._number, self._now_s(), event, replica, session, before, after, author)
        )
        if author.is_relayed:
            return
        self._counts[event] += 1
        _log.info(
            "operator event=%s replica=%s session=%s before=%s after=%s who=%s why=%s",
            event,
            "-" if replica is None else replica,
            "-" if session is None else _quoted(session),
            _quoted(before),
            _quoted(after),
            _quoted(author.who),
            "-" if author.why is None else _quoted(author.why),
        )

    def recent(self, limit: int) -> list[Change]:
        """The newest first."""
        return list(islice(reversed(self._kept), limit))

    def adopt(self, known: list[Change]) -> None:
        """What another worker of this router has noted so far, oldest first."""
        self._kept.extend(change for change in known if change.number > self._number)
        self._number = max([self._number, *(change.number for change in known)])


def _quoted(value: object) -> str:
    """As JSON, in which no line ends."""
    return msgspec.json.encode(value).decode()

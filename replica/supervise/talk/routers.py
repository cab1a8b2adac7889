"""One replica's membership at one router, over the router's control API: lease, heartbeats, leaving.

HTTP only: nothing of the router is imported. A router that cannot be reached is asked again, for as
long as it takes; it never holds the engine up.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

import aiohttp

from replica.supervise.talk.bodies import read_json
from replica.supervise.talk.probe import url_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

_CALL_S: Final = 5.0
_AGAIN_S_MIN: Final = 0.5
_AGAIN_S_MAX: Final = 10.0
_REFUSED_AGAIN_S: Final = 30.0
_LOOK_S: Final = 0.1
_LOOK_S_MAX: Final = 0.5
_REFUSALS: Final = 2
_BEATS_A_LEASE: Final = 3
_WORDS_MAX: Final = 300
_DRAINING: Final = "draining"


class Beat(StrEnum):
    """What came of a call to a router; a metric's label."""

    OK = "ok"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"


@dataclass(slots=True, frozen=True)
class RouterAccess:
    """A router's control port."""

    url: str
    key: str | None = field(default=None, repr=False)
    ca_file: str | None = None

    def tls(self) -> ssl.SSLContext | bool:
        """How its certificate is checked.

        Raises:
            OSError: the CA's file cannot be used.
        """
        if not self.url.startswith("https"):
            return True
        return ssl.create_default_context(cafile=self.ca_file)


@dataclass(slots=True, frozen=True)
class Entry:
    """What a router is told of a replica; ``host`` None is the address by which this machine reaches it."""

    replica_id: str | None
    host: str | None
    port: int
    facts: dict[str, Any]
    lease_s: float


class _RefusedError(Exception):
    pass


class Membership:
    """One replica at one router. ``join`` runs until it is cancelled; then ``leave`` or ``withdraw``."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        access: RouterAccess,
        entry: Entry,
        *,
        dice: random.Random,
        note: Callable[[str], None],
        count: Callable[[Beat], None],
    ) -> None:
        self._session = session
        self._access = access
        self._entry = entry
        self._dice = dice
        self._note = note
        self._count = count
        self._tls = access.tls()
        self._id = entry.replica_id
        self._trouble = ""
        self._is_drained_there = False
        self._was_told = False  # it may know the replica though its answer did not come
        self.is_registered = False

    async def join(self) -> None:
        """Register, then send heartbeats; registers again with a router that has forgotten the replica."""
        wait_s = _AGAIN_S_MIN
        while True:
            try:
                await (self._beat() if self.is_registered else self._register())
                wait_s = _AGAIN_S_MIN
                # A tenth of jitter: replicas that started together do not all call at once.
                pause_s = self._entry.lease_s / _BEATS_A_LEASE * self._dice.uniform(0.9, 1.0)
                if not self.is_registered:  # it has forgotten us, and is told anew now
                    continue
            except _RefusedError as refusal:
                self._count(Beat.REFUSED)
                self._say(f"refuses this replica: {refusal}")
                pause_s = _REFUSED_AGAIN_S
            except (aiohttp.ClientError, OSError, ValueError) as failure:
                self._count(Beat.UNREACHABLE)
                self._say(f"cannot be reached: {_words(failure)}; trying again")
                pause_s = wait_s * self._dice.uniform(0.5, 1.0)
                wait_s = min(_AGAIN_S_MAX, 2 * wait_s)
            await asyncio.sleep(pause_s)

    async def withdraw(self, *, is_for_good: bool) -> None:
        """Say once that the engine is gone.

        Where somebody else has ordered it to drain there, that order would go with the registration:
        unless ``is_for_good``, heartbeats then go on in place of it, until they are cancelled.
        """
        if not self.is_registered:
            return
        if self._is_drained_there and not is_for_good:
            await self.join()
        self.is_registered = False
        with suppress(aiohttp.ClientError, OSError, ValueError, _RefusedError):
            await self._call("DELETE", f"/replicas/{self._quoted}")

    async def leave(self, within_s: float) -> None:
        """Have nothing more sent here, and wait until nothing of the router's runs here.

        Returns before that where the router is gone, cannot be told, or the time is over.
        """
        if not self._was_told:
            return
        clock = asyncio.get_running_loop().time
        until_s = clock() + within_s
        unheard_until_s = clock() + self._entry.lease_s
        n_refused, is_ordered, pause_s = 0, False, _LOOK_S
        while clock() < until_s:
            try:
                if await (self._is_gone() if is_ordered else self._order_drain(until_s - clock())):
                    self.is_registered = False
                    return
                is_ordered, n_refused = True, 0
                unheard_until_s = clock() + self._entry.lease_s
            except _RefusedError as refusal:
                self._say(f"refuses the drain: {refusal}")
                return
            except (aiohttp.ClientError, OSError, ValueError) as failure:
                self._say(f"cannot be reached: {_words(failure)}; trying again")
                # Its port is closed: the router is gone, and what it knew with it.
                n_refused += getattr(failure, "errno", None) == errno.ECONNREFUSED
                if n_refused >= (1 if is_ordered else _REFUSALS) or clock() >= unheard_until_s:
                    return
            await asyncio.sleep(pause_s)
            pause_s = min(_LOOK_S_MAX, 1.5 * pause_s)

    async def _order_drain(self, within_s: float) -> bool:
        """Order it there; True if the router does not know the replica any more."""
        order = {
            "remove": True,
            "deadline_s": max(0.0, within_s),
            "why": "its supervisor stops it",
        }
        status, _ = await self._call("POST", f"/replicas/{self._quoted}/drain", order)
        return status == HTTPStatus.NOT_FOUND

    async def _is_gone(self) -> bool:
        """Whether the router has removed it; a heartbeat, so that the lease does not end before."""
        status, _ = await self._call("PUT", f"/replicas/{self._quoted}/heartbeat")
        return status == HTTPStatus.NOT_FOUND

    @property
    def _quoted(self) -> str:
        return quote(self._id or "", safe="")

    async def _register(self) -> None:
        entry = self._entry
        host = entry.host
        if host is None:
            host = await asyncio.to_thread(_address_towards, self._access.url)
        body: dict[str, Any] = {
            **entry.facts,
            "url": url_of(host, entry.port),
            "lease_s": entry.lease_s,
        }
        if entry.replica_id is not None:
            body["id"] = entry.replica_id
        self._was_told = True
        status, answer = await self._call("POST", "/replicas", body)
        if status not in (HTTPStatus.OK, HTTPStatus.CREATED):
            raise _RefusedError(f"POST /replicas answers {status}")
        self._id = str(answer.get("id", entry.replica_id))
        self.is_registered, self._is_drained_there = True, False
        self._count(Beat.OK)
        self._trouble = ""
        self._note(f"router {self._access.url}: registered as {self._id} at {body['url']}")

    async def _beat(self) -> None:
        status, answer = await self._call("PUT", f"/replicas/{self._quoted}/heartbeat")
        if status == HTTPStatus.NOT_FOUND:
            self.is_registered = False
            self._count(Beat.UNKNOWN)
            self._say("has forgotten this replica; registering again")
            return
        is_drained = answer.get("state") == _DRAINING
        if is_drained and not self._is_drained_there:
            self._note(f"router {self._access.url}: somebody has ordered to drain it there")
        self._is_drained_there = is_drained
        self._count(Beat.OK)
        if self._trouble:
            self._trouble = ""
            self._note(f"router {self._access.url}: reached again")

    async def _call(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        headers = {"x-homeport-actor": "homeport replica run"}
        if self._access.key is not None:
            headers["authorization"] = f"Bearer {self._access.key}"
        async with (
            asyncio.timeout(_CALL_S),
            self._session.request(
                method,
                self._access.url + path,
                json=body,
                headers=headers,
                ssl=self._tls,
                allow_redirects=False,
            ) as answer,
        ):
            body_said = await read_json(answer)
        said = body_said if isinstance(body_said, dict) else {}
        if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise _RefusedError(
                "it wants its admin key: set HOMEPORT_ADMIN_KEY_FILE or --router-key-file"
            )
        code, message = _error(said)
        is_unknown = answer.status == HTTPStatus.NOT_FOUND and code == "unknown-replica"
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise OSError(f"status {answer.status}")
        if answer.status >= HTTPStatus.BAD_REQUEST and not is_unknown:
            raise _RefusedError(
                message or f"status {answer.status}: is this a router's control port (admin_url)?"
            )
        return answer.status, said

    def _say(self, what: str) -> None:
        """A line for each new trouble, not for each try."""
        if what != self._trouble:
            self._trouble = what
            self._note(f"router {self._access.url} {what}")


def _error(said: dict[str, Any]) -> tuple[str, str]:
    error = said.get("error")
    if not isinstance(error, dict):
        return "", ""
    return str(error.get("code", "")), str(error.get("message", ""))[:_WORDS_MAX]


def _address_towards(url: str) -> str:
    """This machine's address on the way to a server. Sends nothing; may ask for a name's address.

    Raises:
        OSError: there is no way there.
    """
    parts = urlsplit(url)
    places = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, address = places[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def _words(failure: Exception) -> str:
    if isinstance(failure, TimeoutError):
        return f"no answer within {_CALL_S:g} s"
    return " ".join(str(failure).split())[:_WORDS_MAX] or type(failure).__name__

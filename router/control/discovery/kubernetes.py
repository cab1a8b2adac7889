"""Replicas behind Kubernetes Services: their EndpointSlices, listed once and then watched.

As the API asks for: a list, then a watch from its ``resourceVersion``, taken up again from the last
version seen when the connection ends, and a list anew when that version is gone (410).
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import aiohttp
import msgspec

from router.control.discovery.access import ACCOUNT, NoAccess, access, demand_extra
from router.control.discovery.feed import OFFERS_MAX, Backoff, Feed
from router.control.discovery.slices import (
    EndpointSlice,
    Event,
    SliceList,
    Status,
    offers_of,
)
from router.state.members.roster import Source
from router.tasks import spawn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from router.control.discovery.access import Access
    from router.control.discovery.feed import Outlet

_log = logging.getLogger("homeport.discovery")
GROUP: Final = "discovery.k8s.io"
RESOURCE: Final = "endpointslices"
VERBS: Final = ("list", "watch")
"""What the router's account must be allowed; ``deploy/k8s/rbac.yaml`` grants it."""
_LABEL: Final = "kubernetes.io/service-name"
_PAGE: Final = 500
_PAGES_MAX: Final = 100
_BODY_BYTES_MAX: Final = 64 << 20
_LINE_BYTES_MAX: Final = 4 << 20
"""An object has at most 1.5 MiB in etcd."""
_CONNECT_S: Final = 5.0
_LIST_S: Final = 30.0
_WATCH_S: Final = 60.0
_GRACE_S: Final = 10.0
_QUIET_S: Final = 1.0


class _Expired(Exception):  # noqa: N818  (it says what happened, as the project's errors do)
    """The version to go on from is gone: list anew."""


class _Refused(Exception):  # noqa: N818
    """The API server's answer is no list and no watch."""


class KubernetesSource:
    """Follows the EndpointSlices of Services from :meth:`start` to :meth:`stop`.

    ``watch_s``: the API server is asked to end a watch after that; one that did not, ``grace_s`` later,
    hangs on a connection that is no more.
    """

    def __init__(
        self,
        services: Sequence[str],
        outlet: Outlet,
        *,
        namespace: str | None = None,
        port: str | None = None,
        kubeconfig: str | None = None,
        account: str = ACCOUNT,
        scheme: str = "http",
        watch_s: float = _WATCH_S,
        grace_s: float = _GRACE_S,
        backoff: Backoff | None = None,
    ) -> None:
        """Prepare.

        Raises:
            ConfigError: the extra ``homeport[kubernetes]`` is not installed.
        """
        demand_extra()
        names = ",".join(sorted(services))
        self._selector = f"{_LABEL} in ({names})" if len(services) > 1 else f"{_LABEL}={names}"
        self._namespace = namespace
        self._port = port
        self._kubeconfig = kubeconfig
        self._account = account
        self._scheme = scheme
        self._watch_s = watch_s
        self._grace_s = grace_s
        self._backoff = backoff or Backoff(outlet.dice)
        self._outlet = outlet
        self._feed = Feed(Source.KUBERNETES, f"kubernetes {names}", outlet)
        self._slices: dict[str, EndpointSlice] = {}
        self._version: str | None = None
        self._has_answered = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Follow from now on."""
        self._task = spawn(self._follow(), name="discovery kubernetes")

    async def stop(self) -> None:
        """Follow no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def answered(self) -> None:
        """Wait until the API server has been asked once, whatever came of it."""
        await self._has_answered.wait()

    async def _follow(self) -> None:
        while True:
            try:
                await self._once()
            except _Expired:
                self._version = None
            except (NoAccess, _Refused) as failure:
                self._feed.failed(f"{failure}"[:300])
            except (aiohttp.ClientError, OSError, TimeoutError) as failure:
                self._feed.failed(f"{type(failure).__name__}: {failure}"[:300])
            except (msgspec.MsgspecError, RecursionError) as failure:
                self._version = None  # the same watch would tell the same
                self._feed.failed(f"not an answer of the API: {failure}"[:300])
            except Exception as failure:  # noqa: BLE001  (one that nobody thought of must not end the source)
                _log.exception("discovery-failed source=kubernetes")
                self._version = None
                self._feed.failed(f"{type(failure).__name__}: {failure}"[:300])
            self._has_answered.set()
            await asyncio.sleep(self._backoff.next_s())

    async def _once(self) -> None:
        """One connection: a list if there is no version to go on from, then a watch to its end."""
        way = await access(self._kubeconfig, self._account)
        connector = aiohttp.TCPConnector(ssl=True if way.tls is None else way.tls)
        async with aiohttp.ClientSession(
            connector=connector, headers=way.headers, read_bufsize=1 << 18
        ) as http:
            if self._version is None:
                await self._list(http, way)
                self._has_answered.set()
            began_s = self._outlet.now_s()
            await self._watch(http, way)
            if self._outlet.now_s() - began_s > _QUIET_S:
                self._backoff.reset()

    def _url(self, way: Access) -> str:
        namespace = self._namespace or way.namespace
        return f"{way.host}/apis/{GROUP}/v1/namespaces/{namespace}/{RESOURCE}"

    async def _list(self, http: aiohttp.ClientSession, way: Access) -> None:
        found: dict[str, EndpointSlice] = {}
        version = page = ""
        for _ in range(_PAGES_MAX):
            asked = {"labelSelector": self._selector, "limit": f"{_PAGE}"}
            if page:
                asked["continue"] = page
            timeout = aiohttp.ClientTimeout(total=_LIST_S, connect=_CONNECT_S)
            async with http.get(
                self._url(way), params=asked, timeout=timeout, server_hostname=way.server_name
            ) as answer:
                body = await _body(answer, _BODY_BYTES_MAX)
                _demand_ok(answer.status, body)
            part = msgspec.json.decode(body, type=SliceList)
            found.update({each.metadata.name: each for each in part.items or []})
            version, page = part.metadata.resourceVersion, part.metadata.next
            if not page:
                break
        else:
            raise _Refused(f"the list has more than {_PAGES_MAX} pages")
        if not version:
            raise _Refused("the list has no resourceVersion")
        self._slices, self._version = found, version
        self._say()

    async def _watch(self, http: aiohttp.ClientSession, way: Access) -> None:
        assert self._version is not None, "a watch goes on from a list"
        watch_s = self._watch_s * (0.8 + 0.2 * self._outlet.dice.random())
        asked: Mapping[str, str] = {
            "labelSelector": self._selector,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": f"{max(1, round(watch_s))}",
        }
        timeout = aiohttp.ClientTimeout(total=watch_s + self._grace_s, connect=_CONNECT_S)
        async with http.get(
            self._url(way), params=asked, timeout=timeout, server_hostname=way.server_name
        ) as answer:
            if answer.status != HTTPStatus.OK:
                _demand_ok(answer.status, await _body(answer, _LINE_BYTES_MAX))
            self._say()
            async for lines in _lines(answer):
                try:
                    for line in lines:
                        self._take(msgspec.json.decode(line, type=Event))
                finally:
                    self._say()

    def _take(self, event: Event) -> None:
        """Apply one line of a watch. Told twice, it changes nothing the second time."""
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=Status)
            if status.code == HTTPStatus.GONE:
                raise _Expired
            raise _Refused(f"the watch ended: {status.code} {status.reason} {status.message}")
        each = msgspec.json.decode(event.object, type=EndpointSlice)
        if event.type in ("ADDED", "MODIFIED"):
            self._slices[each.metadata.name] = each
        elif event.type == "DELETED":
            self._slices.pop(each.metadata.name, None)
        elif event.type != "BOOKMARK":
            return
        self._version = each.metadata.resourceVersion or self._version
        self._backoff.reset()

    def _say(self) -> None:
        offers, fault = offers_of(self._slices.values(), port=self._port, scheme=self._scheme)
        if len(offers) > OFFERS_MAX:
            self._feed.failed(f"{len(offers)} endpoints; at most {OFFERS_MAX} are taken")
            return
        self._feed.say(offers, fault=fault)


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[list[bytes]]:
    """Whole lines as they come, however they are cut; what is behind the last line end is dropped."""
    rest = bytearray()
    async for part in answer.content.iter_any():
        rest += part
        if b"\n" in part:
            *lines, tail = rest.split(b"\n")
            rest = tail
            yield [bytes(line) for line in lines if line.strip()]
        if len(rest) > _LINE_BYTES_MAX:
            raise _Refused(f"a line of the watch has more than {_LINE_BYTES_MAX >> 20} MiB")


async def _body(answer: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    body = bytearray()
    async for part in answer.content.iter_any():
        body += part
        if len(body) > bytes_max:
            raise _Refused(f"an answer has more than {bytes_max >> 20} MiB")
    return bytes(body)


def _demand_ok(code: int, body: bytes) -> None:
    """See that an answer is what was asked for."""
    if code == HTTPStatus.GONE:
        raise _Expired
    if code == HTTPStatus.OK:
        return
    try:
        said = msgspec.json.decode(body, type=Status).message
    except (msgspec.DecodeError, RecursionError):
        said = ""
    hint = (
        f"; the router's account needs {' and '.join(VERBS)} on {RESOURCE}.{GROUP}"
        if code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        else ""
    )
    raise _Refused(f"the API server answers {code} {said}{hint}")

"""A Kubernetes API server for EndpointSlices, written from the API's public documentation.

It lists (in pages), watches from a resourceVersion, ends a watch after ``timeoutSeconds``, sends
bookmarks, and forgets old versions (410). What goes wrong on the way is switched on by its fields.
``running_cluster(folder)`` yields one that listens, with a kubeconfig that leads to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator
    from pathlib import Path

PATH = "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
TOKEN = "token-of-the-router"


def endpoint(address: str, pod: str | None = None, **conditions: bool) -> dict[str, Any]:
    """One endpoint; without conditions it is ready, as the API writes it."""
    told = {"ready": True, "serving": True, "terminating": False} | conditions
    found: dict[str, Any] = {"addresses": [address], "conditions": told}
    if pod is not None:
        found["targetRef"] = {"kind": "Pod", "namespace": "ai", "name": pod, "uid": "u"}
    return found


def slice_of(
    name: str,
    *endpoints: dict[str, Any],
    service: str = "sglang",
    family: str = "IPv4",
    ports: tuple[tuple[str, int], ...] = (("http", 30_000),),
) -> dict[str, Any]:
    """An EndpointSlice as the API shows it."""
    return {
        "metadata": {
            "name": name,
            "namespace": "ai",
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": family,
        "endpoints": list(endpoints),
        "ports": [{"name": n, "port": p, "protocol": "TCP"} for n, p in ports],
    }


class Cluster:
    """Slices, their history, and who asked for what."""

    def __init__(self) -> None:
        self.version = 100
        self.forgotten = 0  # versions below are gone
        self.slices: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[int, str, dict[str, Any]]] = []
        self.asked: list[dict[str, str]] = []
        self.tokens: list[str] = []
        self.n_open = 0
        # What goes wrong
        self.status = 0  # answered to everything
        self.gone_as_event = False
        self.copies = 1  # of each line
        self.piece_bytes = 0  # lines are sent in pieces of that size
        self.cut_at = 0  # the next line is cut off behind so many bytes, with the connection
        self.hangs = False  # watches are accepted and never say anything
        self._news = asyncio.Condition()

    @property
    def lists(self) -> list[dict[str, str]]:
        """The lists that were asked for."""
        return [query for query in self.asked if "watch" not in query]

    @property
    def watches(self) -> list[dict[str, str]]:
        """The watches that were asked for."""
        return [query for query in self.asked if "watch" in query]

    async def put(self, each: dict[str, Any]) -> None:
        """Add or change a slice."""
        name = each["metadata"]["name"]
        await self._happen("MODIFIED" if name in self.slices else "ADDED", each)
        self.slices[name] = self.history[-1][2]

    async def delete(self, name: str) -> None:
        """Remove a slice."""
        await self._happen("DELETED", self.slices.pop(name))

    async def bookmark(self) -> None:
        """Something else in the cluster changed: watches are told the version only."""
        empty = {"metadata": {"name": ""}, "kind": "EndpointSlice", "endpoints": None}
        await self._happen("BOOKMARK", empty)

    async def say(self, kind: str, each: dict[str, Any]) -> None:
        """Send a line to all watches, whatever it is."""
        await self._happen(kind, each)

    async def end_watches(self) -> None:
        """All connections break."""
        async with self._news:
            self.cut_at = self.cut_at or 1
            self._news.notify_all()

    async def _happen(self, kind: str, each: dict[str, Any]) -> None:
        async with self._news:
            self.version += 1
            meta = each["metadata"] | {"resourceVersion": f"{self.version}"}
            self.history.append((self.version, kind, each | {"metadata": meta}))
            self._news.notify_all()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """A list or a watch."""
        query = dict(request.query)
        self.asked.append(query)
        self.tokens.append(request.headers.get("authorization", ""))
        if self.status:
            return _status(self.status, "as the test wants it")
        if "watch" in query:
            return await self._watch(request, query)
        return self._list(query)

    def _list(self, query: dict[str, str]) -> web.StreamResponse:
        names = sorted(self.slices)
        start, limit = int(query.get("continue") or 0), int(query["limit"])
        page = names[start : start + limit]
        meta: dict[str, Any] = {"resourceVersion": f"{self.version}"}
        if start + limit < len(names):
            meta["continue"] = f"{start + limit}"
        items = [self.slices[name] for name in page]
        return web.json_response({"kind": "EndpointSliceList", "metadata": meta, "items": items})

    async def _watch(self, request: web.Request, query: dict[str, str]) -> web.StreamResponse:
        seen = int(query["resourceVersion"])
        is_gone = seen < self.forgotten
        if is_gone and not self.gone_as_event:
            return _status(410, "too old resource version")
        answer = web.StreamResponse(headers={"content-type": "application/json"})
        await answer.prepare(request)
        if is_gone:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            await self._send(answer, request, "ERROR", gone)
            return answer
        self.n_open += 1
        try:
            async with asyncio.timeout(float(query["timeoutSeconds"])):
                await self._stream(answer, request, seen)
        except TimeoutError:
            if self.hangs:
                await asyncio.Event().wait()
        finally:
            self.n_open -= 1
        return answer

    async def _stream(self, answer: web.StreamResponse, request: web.Request, seen: int) -> None:
        while True:
            due = await self._due(seen)
            seen = self.version
            if not due:
                await self._send(answer, request, "BOOKMARK", {"metadata": {}})
            for _, kind, each in due:
                for _ in range(self.copies):
                    await self._send(answer, request, kind, each)

    async def _due(self, seen: int) -> list[tuple[int, str, dict[str, Any]]]:
        """What happened after a version, as soon as something has; nothing if a line is to be cut."""

        def has_news() -> bool:
            return not self.hangs and (self.version > seen or self.cut_at > 0)

        async with self._news:
            await self._news.wait_for(has_news)
            return [row for row in self.history if row[0] > seen]

    async def _send(
        self, answer: web.StreamResponse, request: web.Request, kind: str, each: dict[str, Any]
    ) -> None:
        line = json.dumps({"type": kind, "object": each}).encode() + b"\n"
        if self.cut_at:
            cut, self.cut_at = self.cut_at, 0
            await answer.write(line[:cut])
            assert request.transport is not None
            request.transport.close()
            raise ConnectionResetError
        size = self.piece_bytes or len(line)
        for start in range(0, len(line), size):
            await answer.write(line[start : start + size])


def _status(code: int, message: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "message": message}
    return web.json_response(body, status=code)


@contextlib.asynccontextmanager
async def running_cluster(
    folder: Path, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Cluster, str]]:
    """A cluster that listens on loopback, and the path of a kubeconfig for it."""
    cluster = Cluster()
    app = web.Application()
    app.router.add_get(PATH, cluster.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    port = runner.addresses[0][1]
    path = folder / "kubeconfig"
    path.write_text(kubeconfig(f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"))
    try:
        yield cluster, str(path)
    finally:
        await runner.cleanup()


def kubeconfig(server: str) -> str:
    """A kubeconfig with one cluster and a token."""
    found = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "ai"}}],
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
    }
    return json.dumps(found)  # JSON is YAML

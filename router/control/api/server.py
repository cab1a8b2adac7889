"""The control API's server: what ``docs/control-api.md`` describes."""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from router.control.api.answers import (
    BODY_BYTES_MAX,
    errors,
    expectation,
    json_answer,
    unknown_replica,
    unknown_session,
)
from router.control.api.changes import author_of
from router.control.api.guard import wordless
from router.control.api.listening import Listener
from router.control.api.openapi import description
from router.control.api.operations import Operations, session_key_of
from router.control.api.registration import registration_of, spec_of
from router.control.api.table import CALLS, NEW_TOKENS_MAX, SESSIONS_MAX
from router.control.api.views import (
    changes_view,
    explained_view,
    fleet_view,
    session_view,
    sessions_view,
)
from router.control.sharing.others import Nobody
from router.errors import ClientError
from router.state.members.roster import Source
from router.state.shared.orders import Wish

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Iterable, Sequence

    from aiohttp.typedefs import Middleware

    from router.control.api.changes import Changes
    from router.control.api.guard import Guard
    from router.control.api.operations import Handler
    from router.control.sharing.others import Others
    from router.core import RouterCore
    from router.obs.metrics import RouterMetrics
    from router.state.fleet.replica import Replica
    from router.state.members.roster import Roster

_log = logging.getLogger("homeport.control")
_http_log = logging.getLogger("homeport.control.http")
_http_log.addFilter(wordless)
_SHUTDOWN_S: Final = 2.0
_LINGER_S: Final = 2.0
_IDLE_S: Final = 75.0
"""A kept connection may be idle for so long: more than between two scrapes or heartbeats, mostly."""
_HANDSHAKE_S: Final = 10.0
AMONG_SIBLINGS: Final = "homeport-among-siblings"
"""Set on a request whose answer is one worker's part of what is told for all."""
TTFTS: Final = "ttfts_s"
"""What such an answer has more of the fleet: percentiles do not add up."""


class ControlApi:
    """Serves the control API on its own port."""

    def __init__(
        self,
        core: RouterCore,
        roster: Roster,
        *,
        policy: str,
        metrics: RouterMetrics,
        now_s: Callable[[], float],
        is_ready: Callable[[], bool],
        on_membership: Callable[[], None],
        guard: Guard,
        changes: Changes,
        others: Others | None = None,
    ) -> None:
        self._core = core
        self._others = others or Nobody()
        self._roster = roster
        self._policy = policy
        self._metrics = metrics
        self._now_s = now_s
        self._is_ready = is_ready
        self._on_membership = on_membership
        self._guard = guard
        self._changes = changes
        self._operations = Operations(
            core, roster, changes, policy=policy, now_s=now_s, others=others
        )
        self._runner: web.AppRunner | None = None
        self._inner: web.AppRunner | None = None
        self._listener = Listener()

    async def start(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        handshake_s: float = _HANDSHAKE_S,
        *,
        sockets: Sequence[socket.socket] = (),
        around: Sequence[Middleware] = (),
    ) -> int:
        """Listen, with TLS if there is a context; answers the port that was bound.

        ``handshake_s`` is for one of TLS. ``sockets`` are bound already; ``around`` goes around every call
        that was let in.
        """
        app = self._application(
            (self._listener.middleware, errors, self._guard.middleware, *around)
        )
        self._runner = await _running(app)
        server = self._runner.server
        assert server is not None, "it is set up"
        return await self._listener.start(
            server, host, port, tls=tls, handshake_s=handshake_s, sockets=sockets
        )

    async def serve_siblings(
        self,
        sock: socket.socket,
        around: Sequence[Middleware],
        routes: Iterable[web.AbstractRouteDef],
    ) -> None:
        """Serve the same calls, and further ones, to other workers of this router."""
        app = self._application((errors, *around))
        app.router.add_routes(routes)
        self._inner = await _running(app)
        await web.SockSite(self._inner, sock).start()

    def _application(self, middlewares: Sequence[Middleware]) -> web.Application:
        app = web.Application(middlewares=middlewares, client_max_size=BODY_BYTES_MAX)
        handlers = self._handlers
        assert handlers.keys() == {call.name for call in CALLS}, "a handler for every call"
        for call in CALLS:
            methods = ("GET", "HEAD") if call.method == "GET" else (call.method,)
            for method in methods:
                app.router.add_route(
                    method, call.route, handlers[call.name], expect_handler=expectation
                )
        return app

    def leave(self) -> None:
        """Leave what comes in to siblings that listen on the same sockets."""
        self._listener.stop()

    async def stop(self) -> None:
        """Stop listening and close what is open; what runs has a few seconds to end."""
        self._listener.stop()
        for runner in (self._runner, self._inner):
            if runner is not None:
                await runner.cleanup()

    @property
    def _handlers(self) -> dict[str, Handler]:
        """By the name that the table of calls has for each."""
        return self._operations.handlers | {
            "healthz": self._healthz,
            "readyz": self._readyz,
            "metrics": self._scrape,
            "openapi": self._openapi,
            "fleet": self._fleet,
            "sessions": self._sessions,
            "session": self._session,
            "explain": self._explain,
            "changes": self._changed,
            "register": self._register,
            "heartbeat": self._heartbeat,
            "remove": self._remove,
        }

    async def _healthz(self, _: web.Request) -> web.Response:
        return json_answer({"status": "ok"})

    async def _readyz(self, _: web.Request) -> web.Response:
        is_ready = self._is_ready()
        return json_answer({"ready": is_ready}, status=200 if is_ready else 503)

    async def _scrape(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.text(),
            headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def _openapi(self, _: web.Request) -> web.Response:
        return json_answer(description(version("homeport")))

    async def _fleet(self, request: web.Request) -> web.Response:
        view = fleet_view(self._core, self._policy, self._now_s(), self._roster.sources)
        if request.get(AMONG_SIBLINGS):
            view[TTFTS] = list(self._core.history.ttfts_s)
        return json_answer(view)

    async def _sessions(self, request: web.Request) -> web.Response:
        return json_answer(sessions_view(self._core, _limit(request), self._now_s()))

    async def _changed(self, request: web.Request) -> web.Response:
        return json_answer(changes_view(self._changes, _limit(request), self._now_s()))

    async def _session(self, request: web.Request) -> web.Response:
        key = session_key_of(request)
        view = session_view(self._core, key, self._now_s())
        if view is None:
            raise unknown_session(key)
        return json_answer(view)

    async def _explain(self, request: web.Request) -> web.Response:
        key, new_tokens = session_key_of(request, "/explain"), _new_tokens(request)
        now_s = self._now_s()
        view = explained_view(self._core, self._policy, key, now_s, new_tokens=new_tokens)
        if view is None:
            raise unknown_session(key)
        return json_answer(view)

    async def _register(self, request: web.Request) -> web.Response:
        row = registration_of(await request.read())
        source = Source(row.source)
        if source is Source.OPERATOR and row.lease_s is not None:
            raise ClientError(
                "bad-request", "lease_s: only a replica that registers itself can have a lease"
            )
        spec, author = spec_of(row, source, lease_s=row.lease_s), author_of(request, row.why)
        known = self._core.fleet.get(spec.replica_id)
        is_new, before = known is None, {} if known is None else _named(known)
        replica = self._roster.offer(source, spec, self._now_s())
        self._on_membership()
        if source is Source.REGISTERED:
            await self._others.registered(spec)
        if row.source == "operator":
            self._changes.note(
                "add", author, replica=spec.replica_id, before=before, after=_named(replica)
            )
        _log.info("registered replica=%s url=%s new=%d", spec.replica_id, spec.url, is_new)
        body = {
            "id": spec.replica_id,
            "url": spec.url,
            "state": replica.state,
            "lease_s": spec.lease_s,
        }
        return json_answer(body, status=201 if is_new else 200)

    async def _heartbeat(self, request: web.Request) -> web.Response:
        replica_id = request.match_info["id"]
        replica = self._roster.renew(replica_id, self._now_s())
        if replica is None:
            raise unknown_replica(replica_id)
        self._others.renewed(replica_id)
        lease_s = replica.spec.lease_s
        return json_answer({"id": replica_id, "state": replica.state, "lease_s": lease_s})

    async def _remove(self, request: web.Request) -> web.Response:
        replica_id, author = request.match_info["id"], author_of(request)
        known = self._core.fleet.get(replica_id)
        before = {} if known is None else _named(known)
        if not self._roster.remove(replica_id):
            raise unknown_replica(replica_id)
        self._on_membership()
        await self._others.ordered(replica_id, Wish.REMOVE)
        self._changes.note("remove", author, replica=replica_id, before=before, after={})
        return web.Response(status=204)


async def _running(app: web.Application) -> web.AppRunner:
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        logger=_http_log,
        shutdown_timeout=_SHUTDOWN_S,
        keepalive_timeout=_IDLE_S,
        lingering_time=_LINGER_S,
    )
    await runner.setup()
    return runner


def _named(replica: Replica) -> dict[str, Any]:
    """What a change of the fleet's members says of a replica; never its key."""
    spec = replica.spec
    return {"url": spec.url, "source": spec.source, "state": replica.state}


def _limit(request: web.Request) -> int:
    """How many rows are asked for.

    Raises:
        ClientError: ``bad-request``: the text is no such number.
    """
    return _number(request, "limit", 100, 1, SESSIONS_MAX)


def _new_tokens(request: web.Request) -> int:
    """How many tokens a next turn is to add.

    Raises:
        ClientError: ``bad-request``: the text is no such number.
    """
    return _number(request, "new_tokens", 0, 0, NEW_TOKENS_MAX)


def _number(request: web.Request, name: str, default: int, least: int, most: int) -> int:
    text = request.query.get(name, str(default))
    is_number = text.isdecimal() and len(text) <= len(str(most))
    if not is_number or not least <= int(text) <= most:
        raise ClientError("bad-request", f"{name}: {text[:20]!r} is not from {least} to {most}")
    return int(text)

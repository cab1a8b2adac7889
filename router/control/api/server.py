"""The control API's server: what ``docs/control-api.md`` describes."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec
from aiohttp import web

from router.control.api.guard import wordless
from router.control.api.registration import registered
from router.control.api.views import fleet_view, session_view, sessions_view
from router.errors import ClientError
from router.state.members.roster import Source

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from router.control.api.guard import Guard
    from router.core import RouterCore
    from router.obs.metrics import RouterMetrics
    from router.state.members.roster import Roster

_log = logging.getLogger("homeport.control")
_http_log = logging.getLogger("homeport.control.http")
_http_log.addFilter(wordless)
_BODY_BYTES_MAX: Final = 64 * 1024
_SESSIONS_MAX: Final = 1_000


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
    ) -> None:
        self._core = core
        self._roster = roster
        self._policy = policy
        self._metrics = metrics
        self._now_s = now_s
        self._is_ready = is_ready
        self._on_membership = on_membership
        self._guard = guard
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen, with TLS if there is a context; answers the port that was bound."""
        app = web.Application(
            middlewares=(_errors, self._guard.middleware), client_max_size=_BODY_BYTES_MAX
        )
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._scrape)
        app.router.add_get("/fleet", self._fleet)
        app.router.add_get("/sessions", self._sessions)
        app.router.add_get("/sessions/{key:.+}", self._session)
        app.router.add_post("/replicas", self._register)
        app.router.add_put("/replicas/{id}/heartbeat", self._heartbeat)
        app.router.add_post("/replicas/{id}/drain", self._drain)
        app.router.add_delete("/replicas/{id}", self._remove)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, logger=_http_log)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, reuse_address=True, ssl_context=tls)
        await site.start()
        bound: int = self._runner.addresses[0][1]
        return bound

    async def stop(self) -> None:
        """Stop listening and close what is open."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return _json({"status": "ok"})

    async def _readyz(self, _: web.Request) -> web.Response:
        is_ready = self._is_ready()
        return _json({"ready": is_ready}, status=200 if is_ready else 503)

    async def _scrape(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.text(),
            headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def _fleet(self, _: web.Request) -> web.Response:
        return _json(fleet_view(self._core, self._policy, self._now_s(), self._roster.sources))

    async def _sessions(self, request: web.Request) -> web.Response:
        text = request.query.get("limit", "100")
        is_number = text.isdecimal() and len(text) <= len(str(_SESSIONS_MAX))
        if not is_number or not 1 <= int(text) <= _SESSIONS_MAX:
            raise ClientError(
                "bad-request", f"limit: {text[:20]!r} is not from 1 to {_SESSIONS_MAX}"
            )
        return _json(sessions_view(self._core, int(text), self._now_s()))

    async def _session(self, request: web.Request) -> web.Response:
        # The raw path keeps an encoded slash apart from a real one.
        key = unquote(request.rel_url.raw_path.removeprefix("/sessions/"))
        view = session_view(self._core, key, self._now_s())
        if view is None:
            return _error(404, "unknown-session", f"no session {key!r} is known to this router")
        return _json(view)

    async def _register(self, request: web.Request) -> web.Response:
        spec = registered(await request.read())
        is_new = self._core.fleet.get(spec.replica_id) is None
        replica = self._roster.offer(Source.REGISTERED, spec, self._now_s())
        self._on_membership()
        _log.info("registered replica=%s url=%s new=%d", spec.replica_id, spec.url, is_new)
        body = {
            "id": spec.replica_id,
            "url": spec.url,
            "state": replica.state,
            "lease_s": spec.lease_s,
        }
        return _json(body, status=201 if is_new else 200)

    async def _heartbeat(self, request: web.Request) -> web.Response:
        replica_id = request.match_info["id"]
        replica = self._roster.renew(replica_id, self._now_s())
        if replica is None:
            return _unknown_replica(replica_id)
        lease_s = replica.spec.lease_s
        return _json({"id": replica_id, "state": replica.state, "lease_s": lease_s})

    async def _drain(self, request: web.Request) -> web.Response:
        replica_id = request.match_info["id"]
        replica = self._roster.drain(replica_id, self._now_s())
        if replica is None:
            return _unknown_replica(replica_id)
        inflight = replica.load.inflight
        return _json({"id": replica_id, "state": replica.state, "inflight": inflight})

    async def _remove(self, request: web.Request) -> web.Response:
        replica_id = request.match_info["id"]
        if not self._roster.remove(replica_id):
            return _unknown_replica(replica_id)
        self._on_membership()
        _log.info("removed replica=%s", replica_id)
        return web.Response(status=204)


@web.middleware
async def _errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Every error in the API's one shape."""
    try:
        return await handler(request)
    except ClientError as failure:
        answer = _error(failure.http_status, failure.code, failure.message)
        if failure.http_status == HTTPStatus.UNAUTHORIZED:
            answer.headers["www-authenticate"] = 'Bearer realm="homeport control"'
        return answer
    except web.HTTPNotFound:
        return _error(404, "unknown-path", f"the control API has no {request.path}")
    except web.HTTPMethodNotAllowed as failure:
        allowed = ", ".join(sorted(failure.allowed_methods))
        answer = _error(405, "method-not-allowed", f"{request.path} takes {allowed}")
        answer.headers["allow"] = allowed
        return answer
    except web.HTTPRequestEntityTooLarge:
        return _error(413, "too-large", f"a body here has at most {_BODY_BYTES_MAX} bytes")


def _json(body: dict[str, Any], *, status: int = 200) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(body), content_type="application/json"
    )


def _error(status: int, code: str, message: str) -> web.Response:
    return _json({"error": {"code": code, "message": message}}, status=status)


def _unknown_replica(replica_id: str) -> web.Response:
    message = f"no replica {replica_id!r} is known; register it with POST /replicas"
    return _error(404, "unknown-replica", message)

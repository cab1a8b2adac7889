"""Every call of the control API: its path, what it takes, what it answers. Routes and OpenAPI come from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from router.control.api import shapes
from router.control.api.bodies import DrainOrder, MoveOrder, PinOrder, Reason, ReplicaChange
from router.control.api.registration import Registration

SESSIONS_MAX: Final = 1_000
NEW_TOKENS_MAX: Final = 10_000_000
METRICS_TEXT: Final = "text/plain"


@dataclass(slots=True, frozen=True)
class Call:
    """One method of one path.

    ``answers`` are its good ones, by status: a shape, None for an answer without a body, or a media type
    that is not JSON. ``codes`` are the errors of its own, besides those that any call may have.
    ``is_open``: it needs no key. ``is_change``: who and why are taken from headers and logged.
    """

    name: str
    method: str
    path: str
    summary: str
    answers: dict[int, type | str | None]
    body: type | None = None
    is_body_needed: bool = False
    has_limit: bool = False
    has_new_tokens: bool = False
    codes: tuple[str, ...] = ()
    is_open: bool = False
    is_change: bool = False

    @property
    def route(self) -> str:
        """The path as the server's routing has it: a session's key may hold anything."""
        return self.path.replace("{key}", "{key:.+}")


_REPLICA: Final = ("unknown-replica",)
_SESSION: Final = ("bad-request", "unknown-session", "unknown-replica", "replica-not-usable")

CALLS: Final = (
    Call("healthz", "GET", "/healthz", "the process lives", {200: shapes.Alive}, is_open=True),
    Call(
        "readyz",
        "GET",
        "/readyz",
        "whether requests can be served now",
        {200: shapes.Readiness, 503: shapes.Readiness},
        is_open=True,
    ),
    Call("metrics", "GET", "/metrics", "metrics in Prometheus' text format", {200: METRICS_TEXT}),
    Call("openapi", "GET", "/openapi.json", "this description", {200: dict}),
    Call("fleet", "GET", "/fleet", "all replicas, with totals", {200: shapes.FleetView}),
    Call(
        "sessions",
        "GET",
        "/sessions",
        "the most recent sessions",
        {200: shapes.SessionRows},
        has_limit=True,
        codes=("bad-request",),
    ),
    Call(
        "changes",
        "GET",
        "/changes",
        "what operators changed",
        {200: shapes.ChangeRows},
        has_limit=True,
        codes=("bad-request",),
    ),
    Call(
        "pin",
        "PUT",
        "/sessions/{key}/pin",
        "send all turns of a session to one replica while it can take them",
        {200: shapes.SessionState},
        body=PinOrder,
        is_body_needed=True,
        codes=_SESSION,
        is_change=True,
    ),
    Call(
        "unpin",
        "DELETE",
        "/sessions/{key}/pin",
        "let the policy decide about a session again",
        {200: shapes.SessionState},
        codes=("bad-request", "unknown-session"),
        is_change=True,
    ),
    Call(
        "move",
        "POST",
        "/sessions/{key}/move",
        "make a replica a session's home from now on; it is unpinned from any other",
        {200: shapes.SessionState},
        body=MoveOrder,
        is_body_needed=True,
        codes=_SESSION,
        is_change=True,
    ),
    Call(
        "explain",
        "GET",
        "/sessions/{key}/explain",
        "where a session's next turn would go now, what it would cost everywhere, and why; changes nothing",
        {200: shapes.ExplanationView},
        has_new_tokens=True,
        codes=("bad-request", "unknown-session"),
    ),
    Call(
        "session",
        "GET",
        "/sessions/{key}",
        "one session with its newest decisions",
        {200: shapes.SessionView},
        codes=("unknown-session",),
    ),
    Call(
        "register",
        "POST",
        "/replicas",
        "register a replica, or renew what is known of it",
        {200: shapes.Registered, 201: shapes.Registered},
        body=Registration,
        is_body_needed=True,
        codes=("bad-request",),
        is_change=True,
    ),
    Call(
        "heartbeat",
        "PUT",
        "/replicas/{id}/heartbeat",
        "renew a replica's lease",
        {200: shapes.Beaten},
        codes=_REPLICA,
    ),
    Call(
        "drain",
        "POST",
        "/replicas/{id}/drain",
        "send a replica no new requests; those that run end",
        {200: shapes.ReplicaState},
        body=DrainOrder,
        codes=("bad-request", *_REPLICA),
        is_change=True,
    ),
    Call(
        "undrain",
        "POST",
        "/replicas/{id}/undrain",
        "let a replica take requests again, once it is seen ready",
        {200: shapes.ReplicaState},
        body=Reason,
        codes=("bad-request", *_REPLICA, "drained-by-source"),
        is_change=True,
    ),
    Call(
        "change",
        "PATCH",
        "/replicas/{id}",
        "change a replica's weight or limit",
        {200: shapes.ReplicaState},
        body=ReplicaChange,
        is_body_needed=True,
        codes=("bad-request", *_REPLICA, "weight-unused"),
        is_change=True,
    ),
    Call(
        "forget",
        "POST",
        "/replicas/{id}/forget",
        "believe a replica's cache to be empty, as after a flush by hand",
        {200: shapes.ReplicaState},
        body=Reason,
        codes=("bad-request", *_REPLICA),
        is_change=True,
    ),
    Call(
        "remove",
        "DELETE",
        "/replicas/{id}",
        "forget a replica at once; running requests go on to their end",
        {204: None},
        codes=("bad-request", *_REPLICA),
        is_change=True,
    ),
)
"""In the order in which a path is looked up: a longer one before one that would take it for a key."""

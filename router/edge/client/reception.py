"""The requests of one connection: routed, taken in, decoded, placed, or turned away."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote

from router.edge.client.intake import Intake
from router.edge.client.known import known_of, remember
from router.edge.client.own import own_answer
from router.edge.client.refusals import NO_HEAD, refused
from router.edge.exchange.exchange import Exchange
from router.edge.exchange.tenancy import Visit, welcome
from router.edge.routes.routes import route
from router.edge.wire.answers import passed_through, request_id
from router.edge.wire.relay import Client, Relay
from router.errors import ClientError, Refused, RouterError
from router.framing.forwarding import announce
from router.framing.writing import CONTINUE, status_line

if TYPE_CHECKING:
    import asyncio

    from router.edge.client.known import Known
    from router.edge.context import Door
    from router.edge.routes.routes import Route
    from router.framing.events import RequestHead
    from router.framing.forwarding import Peer

_log: Final = logging.getLogger("homeport.edge")

_EVERYTHING: Final = b"*"
_ALLOWED: Final = status_line(204) + b"allow: GET, HEAD, POST, OPTIONS\r\n"


class Asker(Client, Protocol):
    """The client's connection as its requests see it."""

    def refuse(self, error: RouterError) -> None:
        """Answer an error before the request was read, and read nothing more."""

    def owed(self) -> None:
        """The request is placed: its answer is waited for."""


class Reception:
    """Takes one request after the other; the connection sees to it that none comes while busy."""

    __slots__ = (
        "_client",
        "_decoding",
        "_door",
        "_intake",
        "_known",
        "_peer",
        "_request_id",
        "_route",
        "_visit",
        "exchange",
        "head",
        "is_busy",
    )

    def __init__(self, door: Door, client: Asker, peer: Peer) -> None:
        self._door = door
        self._client = client
        self._peer = peer
        self._intake = Intake(door)
        self._route: Route | None = None
        self._visit: Visit | None = None
        self._known: Known | None = None
        self._request_id = ""
        self._decoding: asyncio.Future[bytes] | None = None
        self.head: RequestHead | None = None
        self.exchange: Exchange | None = None
        self.is_busy = False  # a request is whole and its answer owed

    @property
    def arrived_bytes(self) -> int:
        """What has come of a body that is not whole."""
        return self._intake.n_bytes

    # Events of the framing

    def on_head(self, head: RequestHead, *, is_more: bool) -> None:
        """A request begins; ``is_more``: its next part is here already."""
        self.head = head
        door = self._door
        self._known = known = None if head.alike is None else known_of(head, head.alike, door)
        if known is None:
            self._request_id = request_id(head.headers) or door.new_id()
            self._route = found = route(head, door.routes, door.limits)
            if door.gate is not None:
                self._visit = welcome(door, door.gate, head, found)
        else:
            self._request_id = known.request_id or door.new_id()
            self._visit, self._route = known.visit(head, door)
            found = self._route
        if found.error is not None and head.has_body:
            self._client.refuse(found.error)
        elif head.expects_continue and head.has_body and not is_more:
            self._client.write(CONTINUE)

    def on_body(self, data: bytes) -> None:
        """The next part of a body."""
        error = self._intake.add(data)
        if error is not None:
            self._client.refuse(error)

    def on_end(self) -> None:
        """The request is whole."""
        head, found = self.head, self._route
        assert head is not None
        assert found is not None
        self.is_busy = True
        if head.content_coding and found.error is None and found.is_forwarded:
            self._decoding = self._door.decoders.decode(
                self._intake.hold(),
                head.content_coding,
                self._door.limits,
                partial(self._decoded, head, found),
            )
        else:
            self._serve(head, found, self._intake.take())

    def _decoded(self, head: RequestHead, found: Route, result: bytes | RouterError) -> None:
        self._decoding = None
        self._intake.drop()
        if isinstance(result, RouterError):
            self.turn_away(result)
            return
        head.headers = [line for line in head.headers if line[0] != b"content-encoding"]
        self._serve(head, found, result)
        if self.exchange is not None:
            self._client.owed()

    def _serve(self, head: RequestHead, found: Route, body: bytes) -> None:
        door = self._door
        relay = Relay(self._client, head)
        try:
            if head.target == _EVERYTHING:
                relay.bodiless(_ALLOWED)
                return
            if found.error is not None:
                raise found.error  # noqa: TRY301 - one place answers all errors
            if not found.is_forwarded:
                may_use = None if self._visit is None else self._visit.account.tenant.allows_model
                fields, answer = own_answer(found.path, head, door, may_use)
                relay.whole(fields, answer)
                return
            known = self._known
            if known is None and passed_through(head.headers, door.door_id):
                raise ClientError(  # noqa: TRY301
                    "loop-detected",
                    "This request has come round to this router: one of its replicas leads back here.",
                )
            if door.is_draining:
                raise Refused(  # noqa: TRY301
                    "shutting-down", "The router is shutting down; try again.", retry_after_s=1.0
                )
            if known is None:
                sent = head.headers
                announce(head, self._peer, door.forwarding, door.new_id)
                remember(head, sent, found, self._visit, door)
            else:
                head.headers = known.announced
            self.exchange = exchange = Exchange(
                door=door,
                client=self._client,
                relay=relay,
                dialect=found.dialect,
                request=head,
                request_id=self._request_id,
                visit=self._visit,
            )
            exchange.start(body, unquote(found.variable) if found.variable else "")
        except (ClientError, Refused) as error:
            self.turn_away(error)
        except Exception:  # noqa: BLE001 - a fault of the router itself is answered as one
            _log.exception("request-failed path=%s", found.path)
            fault = RouterError("internal", "The router failed on this request; it is logged.")
            if self.exchange is None or not self.exchange.abandon(fault):
                self.turn_away(fault)

    # Errors

    def turn_away(self, error: RouterError, *, keep_alive: bool = True) -> None:
        """Answer an error without placing the request."""
        head = self.head or NO_HEAD
        answer = refused(
            self._door, error, head, self._request_id, found=self._route, visit=self._visit
        )
        relay = Relay(self._client, head)
        relay.whole(*answer, keep_alive=keep_alive)

    # Ends

    def answered(self) -> None:
        """The answer is whole."""
        self.exchange = self.head = self._route = None
        self._request_id = ""
        self._leave()
        self.is_busy = False

    def drop(self) -> None:
        """Nothing more is read of what has arrived."""
        decoding, self._decoding = self._decoding, None
        if decoding is not None:
            decoding.cancel()
        self._intake.drop()

    def lost(self) -> None:
        """The client is gone."""
        self.drop()
        self._leave()
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.client_gone()

    def _leave(self) -> None:
        visit, self._visit = self._visit, None
        if visit is not None:
            visit.over(self._door.now_s())

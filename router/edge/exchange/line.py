"""The connection of one exchange to the replica that has its request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.edge.wire.answers import request_head

if TYPE_CHECKING:
    import asyncio

    from router.edge.entry.credentials import ReplicaKeys
    from router.edge.exchange.placing import Placement
    from router.edge.replicas.upstream import Receiver, UpstreamConnection, UpstreamPool
    from router.edge.wire.relay import Client
    from router.framing.events import RequestHead


class Line:
    """One connection at a time: asked for, open, or none."""

    __slots__ = ("_client", "_connecting", "_is_raced", "_keys", "_pool", "_upstream")

    def __init__(self, pool: UpstreamPool, keys: ReplicaKeys, client: Client) -> None:
        self._pool = pool
        self._keys = keys
        self._client = client
        self._connecting: asyncio.Task[None] | None = None
        self._upstream: UpstreamConnection | None = None
        self._is_raced = False

    def dial(self, receiver: Receiver, place: Placement, now_s: float, *, is_new: bool) -> None:
        """Get a connection to where the request was placed; ``is_new``: none that was used before."""
        ticket = place.ticket
        assert ticket is not None
        self._is_raced = is_new
        connection = None if is_new else self._pool.take(ticket.spec, now_s)
        if connection is None:
            self._connecting = self._pool.connect(ticket.spec, receiver)
        else:
            receiver.connected(connection)

    def send(
        self,
        receiver: Receiver,
        connection: UpstreamConnection,
        request: RequestHead,
        place: Placement,
    ) -> None:
        """The connection is there: send the request over it."""
        ticket = place.ticket
        assert ticket is not None
        self._connecting = None
        self._upstream = connection
        self._client.watch(connection)
        fields = place.fields_for(ticket) + self._keys.line(ticket.spec)
        head = request_head(request.method, request.target, ticket.spec, fields)
        connection.send(receiver, head, place.body)

    def failed(self) -> None:
        """No connection could be made."""
        self._connecting = None

    def lost(self) -> tuple[bool, bool]:
        """The connection is gone: whether that was the keep-alive race, and whether a byte had come.

        The race is a replica's closing an idle connection as a request is sent over it: that is no
        failure, and a new connection to the same replica is right. It is lost once a request.
        """
        upstream, self._upstream = self._upstream, None
        assert upstream is not None
        self._client.watch(None)
        has_answered = upstream.has_answered
        return upstream.is_reused and not has_answered and not self._is_raced, has_answered

    def give_back(self, now_s: float) -> None:
        """The answer is whole: others may use the connection."""
        upstream, self._upstream = self._upstream, None
        self._client.watch(None)
        if upstream is not None:
            upstream.release(now_s)

    def drop(self) -> None:
        """Close it at once, which ends the replica's work; or give up connecting."""
        connecting, self._connecting = self._connecting, None
        upstream, self._upstream = self._upstream, None
        self._client.watch(None)
        if connecting is not None:
            connecting.cancel()
        if upstream is not None:
            upstream.abort()

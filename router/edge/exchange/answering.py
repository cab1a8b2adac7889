"""What one client is told: a replica's answer, a sign of life, or an error its agent acts on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from router.edge.replicas.reading import with_time
from router.edge.wire.answers import (
    error_fields,
    placement_fields,
    relayed_fields,
    waiting_fields,
)
from router.edge.wire.relay import EVENT_ENDS, HEARTBEAT, PING

if TYPE_CHECKING:
    from router.edge.context import Door
    from router.edge.exchange.placing import Placement
    from router.edge.replicas.reading import AnswerReader
    from router.edge.wire.relay import Relay
    from router.errors import RouterError
    from router.ticket import Ticket

_PINGED: Final = "anthropic-messages"
"""The dialect whose streams have an event for this; elsewhere it is a comment."""


class Answer:
    """Writes one answer through its relay, framed by what the exchange knows."""

    __slots__ = ("_beat_s", "_door", "_place", "_relay", "_request_id")

    def __init__(self, door: Door, relay: Relay, place: Placement, request_id: str) -> None:
        self._door = door
        self._relay = relay
        self._place = place
        self._request_id = request_id
        self._beat_s = 0.0

    def refused_fields(self, reader: AnswerReader, ticket: Ticket) -> bytes:
        """The head of a replica's own refusal, as this agent understands it."""
        head, failure = reader.head, reader.failure()
        assert head is not None
        assert failure is not None
        told = self._place.manners.told(with_time(failure, self._door.core))
        as_told = replace(head, status=told.http_status)
        wait_s = told.retry_after_s
        fields = relayed_fields(as_told, ticket, self._request_id, retry_after_s=wait_s)
        return fields + self._place.manners.fields(told)

    def cut(self, error: RouterError, *, rest: bytes, last: bytes, is_stream: bool) -> None:
        """Break off an answer that has begun: what is left of it, then the error as an event."""
        if not is_stream:
            self._relay.tear(rest)
            return
        if not (rest or last).endswith(EVENT_ENDS):
            rest += b"\n\n"  # the error must not become a part of a half-sent event
        self._relay.end(rest + self._error_event(error))

    def refuse(self, error: RouterError, placement: bytes = b"") -> None:
        """Tell an error instead of an answer: as a status, or as an event once the head is out."""
        if self._relay.is_open:
            self._relay.end(self._error_event(error))
            return
        manners = self._place.manners
        told = manners.told(error)
        fields = error_fields(told, self._request_id, placement) + manners.fields(told)
        self._relay.whole(fields, self._place.dialect.error_body(told))

    def placement(self, ticket: Ticket) -> bytes:
        """Where the request went, as header lines."""
        return placement_fields(ticket, self._request_id)

    def beat(self, now_s: float) -> None:
        """Once the head has been held for too long, send it, and a sign of life now and then.

        An HTTP/1.0 client gets none: its end is told by closing, so nothing may be begun early.
        """
        relay, limits, place = self._relay, self._door.limits, self._place
        if relay.is_http10:
            return
        if not relay.is_open:
            if now_s - place.started_s >= limits.head_hold_s:
                self._beat_s = now_s
                relay.open(waiting_fields(place.ticket, self._request_id), self._sign)
        elif now_s - self._beat_s >= limits.heartbeat_s and not relay.is_paused:
            self._beat_s = now_s
            relay.send(self._sign)

    @property
    def _sign(self) -> bytes:
        return PING if self._place.dialect.name == _PINGED else HEARTBEAT

    def _error_event(self, error: RouterError) -> bytes:
        return self._place.dialect.error_event(self._place.manners.told(error))

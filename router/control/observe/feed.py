"""The load feed of a replica: what its schedulers publish over ZeroMQ, newest reading of each rank.

SGLang sends a reading when it changes, and an unchanged one each second: a feed that is silent for two
seconds is that of a scheduler that hangs, or is gone. The feed cannot be conflated by ZeroMQ, as its
messages have three parts; so it is emptied at short intervals, and all but the newest is dropped.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from router.clock import now_s as real_now_s
from router.control.observe.reports import RankReport, count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import zmq

_log: Final = logging.getLogger("homeport.probes")
SILENT_S: Final = 2.0
"""After so long without a reading of every rank the feed is not believed."""
_READ_MAX: Final = 256
"""Messages of one rank read at once: more come only from a publisher that floods."""
_READ_S: Final = 0.05
_CHECKED_EACH: Final = 32
_SOCKETS_MAX: Final = 8_192
_RANKS_MAX: Final = 128
_PORT_MAX: Final = 65_535
_MESSAGE_BYTES_MAX: Final = 4_096
_PARTS: Final = 3
_SEQUENCE_BYTES: Final = 8
_RECONNECT_MS: Final = 250
_RECONNECT_MS_MAX: Final = 5_000
_TAG: Final = "LoadStat"
_FIELDS_MIN: Final = 6

_payload: Final = msgspec.msgpack.Decoder(list[Any])


class FeedAddress(NamedTuple):
    """Where a replica publishes its load: rank r on ``port + r`` of the replica's own host."""

    host: str
    port: int
    n_ranks: int
    topic: str


def feed_address(host: str, info: Mapping[str, Any]) -> FeedAddress | None:
    """What ``/server_info`` says of the load feed; None if there is none.

    The host it names is one to listen on, mostly a wildcard: it is asked at its own.
    """
    told = info.get("kv_events")
    if not isinstance(told, dict):
        return None
    port, topic = count(told.get("load_endpoint_port_base")), told.get("load_topic", "load")
    n_ranks = count(told.get("dp_size"))
    if not 0 < n_ranks <= _RANKS_MAX or not 0 < port <= _PORT_MAX + 1 - n_ranks:
        return None
    if not isinstance(topic, str):
        return None
    return FeedAddress(host, port, n_ranks, topic)


class _Reading(NamedTuple):
    sequence: int
    heard_s: float
    report: RankReport


class LoadFeed:
    """A subscription to one replica's ranks; :meth:`read` empties it, and never waits."""

    def __init__(
        self,
        context: zmq.Context[Any],
        address: FeedAddress,
        now_s: Callable[[], float] = real_now_s,
    ) -> None:
        """Subscribe; connecting, and doing so again, is left to ZeroMQ."""
        import zmq  # noqa: PLC0415  (an extra: only where it is installed)

        self.address = address
        self._again: type[Exception] = zmq.Again
        self._no_wait = zmq.NOBLOCK
        self._now_s = now_s
        self._is_read_up = True
        self._readings: dict[int, _Reading] = {}
        self._socket: Any = context.socket(zmq.SUB)
        options = {
            zmq.LINGER: 0,
            zmq.RCVHWM: _READ_MAX,
            zmq.MAXMSGSIZE: _MESSAGE_BYTES_MAX,
            zmq.RECONNECT_IVL: _RECONNECT_MS,
            zmq.RECONNECT_IVL_MAX: _RECONNECT_MS_MAX,
            zmq.IPV6: int(":" in address.host),
            zmq.SUBSCRIBE: address.topic.encode(),
        }
        host = f"[{address.host}]" if ":" in address.host else address.host
        try:
            for option, value in options.items():
                self._socket.setsockopt(option, value)
            for rank in range(address.n_ranks):
                self._socket.connect(f"tcp://{host}:{address.port + rank}")
        except zmq.ZMQError:
            self._socket.close()
            raise

    def read(self, now_s: float) -> bool:
        """Take what has come; answers whether any rank has said something new.

        So many messages, and for so long, that no replica holds up the others: what is left is old, and
        the feed is not live until all of it is read.
        """
        newest: dict[int, tuple[int, list[Any]]] = {}
        self._is_read_up = False
        until_s = self._now_s() + _READ_S
        for n in range(_READ_MAX * self.address.n_ranks):
            if n % _CHECKED_EACH == _CHECKED_EACH - 1 and self._now_s() > until_s:
                break
            try:
                parts: list[bytes] = self._socket.recv_multipart(self._no_wait)
            except self._again:
                self._is_read_up = True
                break
            if len(parts) != _PARTS or len(parts[1]) != _SEQUENCE_BYTES:
                continue
            fields = _fields(parts[2])
            if fields is not None:
                newest[min(count(fields[5]), _RANKS_MAX)] = int.from_bytes(parts[1], "big"), fields
        for rank, (sequence, fields) in newest.items():
            if rank < self.address.n_ranks:
                self._readings[rank] = _Reading(sequence, now_s, _report(rank, sequence, fields))
        return bool(newest)

    def is_live(self, now_s: float) -> bool:
        """Every rank has been heard in the last seconds, and nothing newer waits unread."""
        readings = self._readings
        return (
            self._is_read_up
            and len(readings) == self.address.n_ranks
            and all(now_s - reading.heard_s <= SILENT_S for reading in readings.values())
        )

    def reports(self) -> list[RankReport]:
        """The newest reading of each rank that was heard, by rank."""
        return [self._readings[rank].report for rank in sorted(self._readings)]

    def close(self) -> None:
        """End the subscription."""
        self._socket.close()


class Feeds:
    """Opens load feeds where ZeroMQ is installed; says so once where it is not."""

    def __init__(self, sockets_max: int = _SOCKETS_MAX) -> None:
        self._sockets_max = sockets_max
        self._context: zmq.Context[Any] | None = None
        self._is_missing = False
        self._is_warned = False

    def open(self, address: FeedAddress) -> LoadFeed | None:
        """Subscribe to a feed; None if that cannot be done here."""
        if self._is_missing:
            return None
        try:
            import zmq  # noqa: PLC0415  (an extra: only where it is installed)
        except ImportError:
            self._is_missing = True
            _log.warning(
                "no-load-feed (a replica publishes its load; install homeport[events] to follow it)"
            )
            return None
        if self._context is None:
            self._context = zmq.Context()
            self._context.set(zmq.MAX_SOCKETS, self._sockets_max)
        try:
            return LoadFeed(self._context, address)
        except zmq.ZMQError as fault:
            level = logging.DEBUG if self._is_warned else logging.WARNING
            self._is_warned = True
            said = (address.host, address.port, f"{fault}")
            _log.log(
                level,
                "no-load-feed host=%r port=%d reason=%r (its load is asked for instead; so is that of"
                " others with such trouble, which are not told)",
                *said,
            )
            return None

    def close(self) -> None:
        """Release ZeroMQ's own threads; all feeds must be closed."""
        if self._context is not None:
            self._context.destroy(linger=0)
            self._context = None


def _fields(payload: bytes) -> list[Any] | None:
    """A reading's fields by position; None if it is none."""
    try:
        fields = _payload.decode(payload)
    except (ValueError, RecursionError):
        return None
    return fields if len(fields) >= _FIELDS_MIN and fields[0] == _TAG else None


def _report(rank: int, sequence: int, fields: list[Any]) -> RankReport:
    """A reading in the words of a load report; its place in the sequence stands for its time."""
    more = fields + [None] * (11 - len(fields))
    return RankReport(
        dp_rank=rank,
        timestamp=sequence,
        num_running_reqs=more[1],
        num_waiting_reqs=more[2],
        num_used_tokens=more[3],
        max_total_num_tokens=more[4],
        num_waiting_uncached_tokens=more[6],
        total_prefill_uncached_tokens=more[9],
        total_prefill_busy_us=more[10],
    )

"""What a replica is told of where a request comes from: its client, and its trace.

``X-Forwarded-For``, ``-Proto``, ``-Host`` and ``Forwarded`` (RFC 7239) are this hop's own word. What
came before it is believed only where the connection's other end is a trusted proxy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, Literal

from router.framing.writing import KEYS, NOT_FORWARDED, clean, lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from ipaddress import IPv4Network, IPv6Network

    from router.framing.events import HeaderList, RequestHead

Mode = Literal["append", "set", "strip"]

_FORWARDED: Final = b"forwarded"
_FOR: Final = b"x-forwarded-for"
_PROTO: Final = b"x-forwarded-proto"
_HOST: Final = b"x-forwarded-host"
_TRACEPARENT: Final = b"traceparent"
_TRACESTATE: Final = b"tracestate"
_ORIGIN: Final = frozenset(
    (_FORWARDED, _FOR, _PROTO, _HOST, b"x-forwarded-port", b"x-forwarded-server", b"x-real-ip")
)
_TRACING: Final = frozenset((_TRACEPARENT, _TRACESTATE))
WATCHED: Final = _ORIGIN | _TRACING
"""Headers about a request's origin and trace."""

_DROPPED: Final = NOT_FORWARDED | WATCHED
_DROPPED_WITH_KEYS: Final = _DROPPED | KEYS
_PLAIN: Final = frozenset((b"", b"keep-alive", b"close"))
_KEPT: Final = frozenset((b"x-homeport-via",))
"""What no client may have dropped by naming it in Connection: without it a loop has no end."""
_TRACE: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-[ -~]*)?")
_UNKNOWN: Final = "unknown"
_MAPPED: Final = "::ffff:"


@dataclass(slots=True, frozen=True)
class ForwardingRules:
    """What is told to replicas.

    ``mode``: ``append`` this hop to what a trusted proxy said, and set it where anybody else
    connects; ``set`` this hop always; ``strip`` all of it. ``is_trace_begun``: a request without a
    sound ``traceparent`` gets a new one. ``is_key_dropped``: the client's API key is not for replicas.
    """

    mode: Mode = "append"
    trusted: tuple[IPv4Network | IPv6Network, ...] = ()
    is_trace_begun: bool = False
    is_key_dropped: bool = True


class Announced(list[tuple[bytes, bytes]]):
    """Header lines that may be passed on as they are; ``written`` are these and more, as bytes.

    Heads that are alike share one.
    """

    __slots__ = ("written",)

    written: bytes


class Peer:
    """The other end of one client connection."""

    __slots__ = ("_for", "_forwarded", "_host", "_mode", "_proto", "_told", "address", "is_trusted")

    def __init__(self, address: str, rules: ForwardingRules, *, is_secure: bool) -> None:
        if address.startswith(_MAPPED) and "." in address:  # a listener for both kinds
            address = address.removeprefix(_MAPPED)
        self.address = address or _UNKNOWN
        self.is_trusted = _is_trusted(address, rules)
        self._mode = rules.mode if rules.mode != "append" or self.is_trusted else "set"
        self._for = clean(self.address)
        self._proto = b"https" if is_secure else b"http"
        node = b'"[%b]"' % self._for if ":" in self.address else self._for
        self._forwarded = b"for=%b;proto=%b" % (node, self._proto)
        self._host: bytes | None = None
        self._told = b""

    def told(self, host: bytes) -> bytes:
        """The lines about the origin that a replica gets where nothing is appended to."""
        if host != self._host:  # it is the same for a connection's life
            self._host, self._told = host, lines(self._own(host))
        return self._told

    def told_behind(self, before: HeaderList, host: bytes) -> bytes:
        """The same; ``before`` are the lines of this kind that came."""
        if self._mode != "append":
            return self.told(host)
        said: dict[bytes, bytes] = {}
        for name, value in before:
            said[name] = said[name] + b", " + value if name in said else value
        is_new = _FOR not in said and _FORWARDED not in said
        if is_new or _FOR in said:
            said[_FOR] = said[_FOR] + b", " + self._for if _FOR in said else self._for
            said.setdefault(_PROTO, self._proto)
            if host:
                said.setdefault(_HOST, host)
        if is_new or _FORWARDED in said:  # a proxy that uses one form goes on in this one
            before_us = said.get(_FORWARDED)
            forwarded = self._element(host)
            said[_FORWARDED] = before_us + b", " + forwarded if before_us else forwarded
        return lines(said.items())

    def _own(self, host: bytes) -> HeaderList:
        if self._mode == "strip":
            return []
        lines = [(_FOR, self._for), (_PROTO, self._proto), (_FORWARDED, self._element(host))]
        return [*lines, (_HOST, host)] if host else lines

    def _element(self, host: bytes) -> bytes:
        """This hop in ``Forwarded``; a Host has no quotes in it."""
        return b'%b;host="%b"' % (self._forwarded, host) if host else self._forwarded


def announce(
    head: RequestHead, peer: Peer, rules: ForwardingRules, new_id: Callable[[], str]
) -> None:
    """Put what a replica is told in the place of what the client said.

    Lines that Connection names are taken out here, so that no client can name ours. ``new_id``
    answers 32 random hex digits.
    """
    headers = head.headers
    dropped = _DROPPED_WITH_KEYS if rules.is_key_dropped else _DROPPED
    kept = [line for line in headers if line[0] not in dropped]
    traces: HeaderList = []
    if head.connection in _PLAIN and not head.is_watched:
        told = peer.told(head.host)
    else:
        named = {part.strip() for part in head.connection.split(b",")} - _KEPT
        came = [line for line in headers if line[0] in _ORIGIN and line[0] not in named]
        traces = [line for line in headers if line[0] in _TRACING and line[0] not in named]
        kept = [line for line in kept if line[0] not in named]
        told = peer.told_behind(came, head.host)
    if traces or rules.is_trace_begun:
        parents = [value for name, value in traces if name == _TRACEPARENT]
        found = _TRACE.fullmatch(parents[0]) if len(parents) == 1 else None
        if found is not None and _is_sound(found):
            head.trace_id = found[2].decode()
        elif rules.is_trace_begun:
            head.trace_id, parent_id = new_id(), new_id()[:16]
            begun = f"00-{head.trace_id}-{parent_id}-01"
            traces = [(_TRACEPARENT, begun.encode())]
        kept += traces
    head.headers = announced = Announced(kept)
    announced.written = lines(kept) + told


def _is_sound(trace: re.Match[bytes]) -> bool:
    """W3C Trace Context: no id is all zeros, version ff is none, version 00 ends with its flags."""
    version, trace_id, parent_id, more = trace.groups()
    is_known = version != b"ff" and (version != b"00" or more is None)
    return is_known and bool(trace_id.strip(b"0")) and bool(parent_id.strip(b"0"))


def _is_trusted(address: str, rules: ForwardingRules) -> bool:
    if not rules.trusted:
        return False
    try:
        known = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return any(known in network for network in rules.trusted)

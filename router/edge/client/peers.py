"""Who is at the other end of a client's connection, and how many connections it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.errors import Refused
from router.framing.forwarding import Peer

if TYPE_CHECKING:
    import asyncio

    from router.edge.context import Door


def peer_of(transport: asyncio.BaseTransport, door: Door) -> Peer:
    """The other end of a connection that has just been made."""
    name = transport.get_extra_info("peername")
    address = name[0] if isinstance(name, tuple) else ""
    is_secure = transport.get_extra_info("sslcontext") is not None
    return Peer(address, door.forwarding, is_secure=is_secure)


def admit(peer: Peer, door: Door) -> Refused | None:
    """Count one more connection of this peer; answers why it cannot be served, None if it can."""
    limits = door.limits
    n_own = door.clients.get(peer.address, 0) + 1
    door.clients[peer.address] = n_own
    if len(door.connections) >= limits.connections_max:
        return Refused("saturated", "Too many connections; come back later.", retry_after_s=1.0)
    if 0 < limits.connections_per_client_max < n_own and not peer.is_trusted:
        return Refused(
            "saturated",
            f"{peer.address} has {limits.connections_per_client_max} connections already, as many as"
            " one client may; use fewer, or keep them alive.",
            retry_after_s=1.0,
        )
    return None


def leave(peer: Peer, door: Door) -> None:
    """A connection of this peer is gone."""
    n_left = door.clients.get(peer.address, 0) - 1
    if n_left > 0:
        door.clients[peer.address] = n_left
    else:
        door.clients.pop(peer.address, None)

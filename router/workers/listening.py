"""The sockets that the parent binds once, for as long as the router runs."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

_BACKLOG: Final = 1024


def bound(host: str, port: int) -> list[socket.socket]:
    """Listen on all addresses of a host; port 0 takes a free one, the same on all.

    Raises:
        OSError: one of them cannot be listened on; none is then.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            sock = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(sock)
            sock.setblocking(False)  # noqa: FBT003  (its only form)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            chosen = port or (sockets[0].getsockname()[1] if len(sockets) > 1 else 0)
            sock.bind((address[0], chosen, *address[2:]))
            sock.listen(_BACKLOG)
    except OSError:
        for sock in sockets:
            with suppress(OSError):
                sock.close()
        raise
    return sockets


def private(kind: int, name: str) -> socket.socket:
    """A socket of one worker for its siblings; streams are listened for."""
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.setblocking(False)  # noqa: FBT003  (its only form)
    sock.bind(name)
    if kind == socket.SOCK_STREAM:
        sock.listen(_BACKLOG)
    return sock

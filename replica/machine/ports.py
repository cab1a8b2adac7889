"""Whether a port may be bound here, and who holds one that may not."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

_LISTENING: Final = "0A"
_SHOWN_CHARS: Final = 120


def bind_failure(host: str, port: int) -> OSError | None:
    """Why a server could not listen there; None if it could. ``host`` empty: on all addresses."""
    try:
        places = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = places[0]
        with socket.socket(family, kind, protocol) as probe:
            # As servers do: connections that linger from the last one are no hindrance.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as failure:
        return failure
    return None


def holder(port: int) -> str | None:
    """Who listens on a port, as a process and its command line; None where this user may not know."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError, IndexError, ValueError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if int(words[1].rpartition(":")[2], 16) == port and words[3] == _LISTENING:
                    inodes.add(f"socket:[{words[9]}]")
    for descriptors in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):
            if any(str(link.readlink()) in inodes for link in descriptors.iterdir()):
                command = (descriptors.parent / "cmdline").read_bytes().replace(b"\0", b" ")
                named = command.decode(errors="replace").strip()[:_SHOWN_CHARS]
                return f"process {descriptors.parent.name} ({named})"
    return None

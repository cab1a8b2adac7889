"""Who is believed, and what replicas are shown: their own key, never a client's unasked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

    from router.edge.entry.tls import ServerTls
    from router.state.fleet.replica import ReplicaSpec
    from router.tenants.gate import Gate


class ReplicaKeys:
    """The keys that replicas are sent.

    ``key`` is the fleet's, used where a replica has none of its own. ``is_client_forwarded``: the
    client's key is passed on instead of all of them.
    """

    __slots__ = ("_line", "is_client_forwarded")

    def __init__(self, key: str | None = None, *, is_client_forwarded: bool = False) -> None:
        self.is_client_forwarded = is_client_forwarded
        self._line = b"" if key is None or is_client_forwarded else _line(key)

    def line(self, spec: ReplicaSpec) -> bytes:
        """The header line for one replica, empty if it needs none."""
        if spec.api_key is None or self.is_client_forwarded:
            return self._line
        return _line(spec.api_key)


@dataclass(slots=True)
class EdgeSecurity:
    """What guards the front door; by default nothing does.

    ``gate`` knows the tenants. ``tls`` is the data port's, with ``handshake_s`` for a client's
    handshake; ``replica_tls`` is used towards replicas whose URL asks for it.
    """

    gate: Gate | None = None
    keys: ReplicaKeys = field(default_factory=ReplicaKeys)
    tls: ServerTls | None = None
    handshake_s: float = 10.0
    replica_tls: ssl.SSLContext | None = None


def _line(key: str) -> bytes:
    return b"authorization: Bearer %b\r\n" % key.encode("ascii")

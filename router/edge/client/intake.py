"""The body of the request that is arriving on one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.edge.routes.routes import too_large
from router.errors import Refused, RouterError

if TYPE_CHECKING:
    from router.edge.context import Door

_PARTS_MAX: Final = 256
"""Small parts are folded into one buffer: an object each would weigh thirty times what it holds."""


class Intake:
    """Collects a body's parts; bounded for itself and, with all others, for the door."""

    __slots__ = ("_door", "_folded", "_parts", "n_bytes")

    def __init__(self, door: Door) -> None:
        self._door = door
        self._parts: list[bytes] = []
        self._folded: bytearray | None = None
        self.n_bytes = 0

    def add(self, data: bytes) -> RouterError | None:
        """Take the next part; answers why the body cannot be taken, None if it can."""
        limits = self._door.limits
        self.n_bytes += len(data)
        self._door.arriving_bytes += len(data)
        if self.n_bytes > limits.body_bytes_max:
            return too_large(self.n_bytes, limits)
        if self._door.arriving_bytes > limits.arriving_bytes_max:
            return Refused(
                "saturated",
                "The router holds as many unfinished request bodies as it may; try again.",
                retry_after_s=1.0,
            )
        if self._folded is not None:
            self._folded += data
            return None
        self._parts.append(data)
        if len(self._parts) > _PARTS_MAX:
            self._folded = bytearray().join(self._parts)
            self._parts.clear()
        return None

    def hold(self) -> bytes:
        """The whole body, which goes on counting until :meth:`drop`."""
        body = b"".join(self._parts) if self._folded is None else bytes(self._folded)
        self._parts, self._folded = [body], None
        return body

    def take(self) -> bytes:
        """The whole body; the intake is empty then."""
        body = b"".join(self._parts) if self._folded is None else bytes(self._folded)
        self.drop()
        return body

    def drop(self) -> None:
        """Forget what has arrived."""
        self._door.arriving_bytes -= self.n_bytes
        self.n_bytes = 0
        self._parts.clear()
        self._folded = None

"""What the control API tells other routers of, where there are any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.state.fleet.replica import ReplicaSpec
    from router.state.sessions.pins import Pin
    from router.state.shared.orders import Wish


class Others(Protocol):
    """Tells the other routers; every call answers whether they know, and never raises."""

    async def registered(self, spec: ReplicaSpec) -> bool:
        """A replica registered here."""

    def renewed(self, replica_id: str) -> None:
        """A replica's heartbeat came here."""

    async def ordered(
        self,
        replica_id: str,
        wish: Wish,
        *,
        leaves: bool = False,
        deadline_s: float | None = None,
    ) -> bool:
        """An operator wants this of a replica."""

    async def changed(self, session_key: str, change: Callable[[], Pin | None]) -> bool:
        """An operator changes a session: ``change`` is made here, and counts at all routers."""


class Nobody:
    """There are no others."""

    async def registered(self, spec: ReplicaSpec) -> bool:
        """Nobody is told."""
        del spec
        return True

    def renewed(self, replica_id: str) -> None:
        """Nobody is told."""

    async def ordered(
        self,
        replica_id: str,
        wish: Wish,
        *,
        leaves: bool = False,
        deadline_s: float | None = None,
    ) -> bool:
        """Nobody is told."""
        del replica_id, wish, leaves, deadline_s
        return True

    async def changed(self, session_key: str, change: Callable[[], Pin | None]) -> bool:
        """It is changed here."""
        del session_key
        change()
        return True

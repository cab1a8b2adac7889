"""Requests that wait at a door for their turn: until a replica has computed another long prompt.

The rules are those of ``router.edge.bounds.holding``: once a replica's turn is free, those that wait for it try in the
order in which its engine would take them; each second everybody tries, for another replica may be the better one by then;
and who has waited for ``TURN_S``, or ``TURN_SHORT_FIRST_S``, is sent all the same. Here a door holds any number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.kernel import Alarm, Rank

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.errors import AwaitsTurn
    from sim.fleet.parts import Door, Exchange
    from sim.kernel import Kernel

TURN_S: Final = 180.0
TURN_SHORT_FIRST_S: Final = 10.0
"""As ``router.edge.bounds.limits`` has them, the latter for engines that take short prompts first."""

_LOOK_S: Final = 1.0


class Rooms:
    """Who waits at which door, and for which replica.

    ``try_again`` is told a request that waits no more, and the time: it places and sends it, or has it enter again.
    """

    def __init__(self, kernel: Kernel, try_again: Callable[[Exchange, float], None]) -> None:
        self._kernel = kernel
        self._try_again = try_again
        self._waiting: dict[tuple[int, str], dict[Exchange, AwaitsTurn]] = {}
        self._alarm = Alarm(Rank.ARRIVAL, self._look, None)

    def is_to_wait(self, exchange: Exchange, turn: AwaitsTurn, now_s: float) -> bool:
        """It has not waited for this turn as long as it may."""
        waited_s = now_s - (exchange.turn_by_s - TURN_S)
        return waited_s < turn.allowed_s(most_s=TURN_S, short_first_s=TURN_SHORT_FIRST_S)

    def enter(self, exchange: Exchange, turn: AwaitsTurn) -> None:
        """A request waits for this turn from now on."""
        assert exchange.door is not None, "a turn comes to a router"
        exchange.awaits = key = (exchange.door.number, turn.replica_id)
        self._waiting.setdefault(key, {})[exchange] = turn
        if self._alarm.at_s is None:
            self._kernel.arm(self._alarm, self._kernel.now_s + _LOOK_S)

    def leave(self, exchange: Exchange) -> None:
        """It waits no more, if it did."""
        key, exchange.awaits = exchange.awaits, None
        if key is not None:
            waiting = self._waiting[key]
            del waiting[exchange]
            if not waiting:
                del self._waiting[key]

    def ring(self, door: Door, replica_id: str, now_s: float) -> None:
        """A request of this door's has begun or ended there: a turn may be free."""
        key = (door.number, replica_id)
        waiting = self._waiting.get(key)
        if waiting is None:
            return
        for exchange, _ in sorted(waiting.items(), key=_place):
            if not door.has_turn(replica_id):
                return
            if exchange.awaits == key:  # one that failed at once may have rung for another
                self.leave(exchange)
                self._try_again(exchange, now_s)

    def _look(self, _: None) -> None:
        now_s = self._kernel.now_s
        everybody = [item for waiting in self._waiting.values() for item in waiting.items()]
        for exchange, _turn in sorted(everybody, key=_place):
            if exchange.awaits is not None:
                self.leave(exchange)
                self._try_again(exchange, now_s)
        self._kernel.arm(self._alarm, now_s + _LOOK_S if self._waiting else None)


def _place(waiting: tuple[Exchange, AwaitsTurn]) -> tuple[int, int]:
    exchange, turn = waiting
    return turn.place, exchange.order

"""The agents: each sends its turns when they fall due, waits for the answers, and tries again on errors.

They do as agents with the vendors' client libraries do: at most ten further tries of a turn, after a
server's ``Retry-After`` where there is one of at most a minute, else after half a second, doubled each
time up to eight, less up to a quarter of that by chance. A stream that broke is tried again likewise; so
is a connection that no router accepts. After the last try the turn is given up, and the session goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hashing.rendezvous import rank
from sim.fleet.parts import HOP_S, Exchange
from sim.kernel import Rank

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from sim.fleet.checks import Checks
    from sim.fleet.edge import Edge
    from sim.fleet.parts import Door
    from sim.kernel import Kernel
    from sim.measure.recording import Recording
    from sim.workload.play.turns import Due, Play

TRIES_MAX: Final = 11
BACKOFF_S: Final = 0.5
BACKOFF_S_MAX: Final = 8.0
BACKOFF_JITTER: Final = 0.25
RETRY_AFTER_S_MAX: Final = 60.0

_ARRIVAL: Final = Rank.ARRIVAL


class Clients:
    """All agents of a run.

    ``open`` counts the turns that are due or under way, ``waiting`` the measured ones without a token yet.
    When there are neither turns to come nor open ones the run is over.
    """

    def __init__(
        self,
        kernel: Kernel,
        play: Play,
        recording: Recording,
        checks: Checks,
        doors: Sequence[Door],
        *,
        dice: random.Random,
        measured_s: tuple[float, float],
        is_spread_by_session: bool,
    ) -> None:
        self._kernel = kernel
        self._play = play
        self._recording, self._rows = recording, recording.rows
        self._checks = checks
        self._doors = doors
        self._dice = dice
        self._from_s, self._until_s = measured_s
        self._is_spread_by_session = is_spread_by_session
        self._arrivals: Iterator[Due] = iter(play.arrivals())
        self._routes: dict[str, Door] = {}
        self.edge: Edge | None = None
        self.open = 0
        self.waiting = 0
        self.unfinished: dict[int, Exchange] = {}

    def start(self, edge: Edge) -> None:
        """Begin with what comes whatever happens."""
        self.edge = edge
        self._next_arrival()

    def forget_routes(self) -> None:
        """Another set of routers is there: sessions are spread anew."""
        self._routes.clear()

    # What the edge tells

    def waits_no_longer(self, exchange: Exchange) -> None:
        """The first token of a turn came, in whichever try, or never will."""
        if exchange.is_measured:
            self.waiting -= 1
            if not self.waiting and self._recording.is_closed:
                self._kernel.halt()

    def over(self, exchange: Exchange, now_s: float) -> None:
        """A turn has ended, in whatever way: the session goes on."""
        self._checks.over(exchange)
        exchange.is_over = True
        exchange.prompt = exchange.ticket = None
        del self.unfinished[exchange.row]
        dues = self._play.ended(exchange.turn, now_s + HOP_S)
        for due in dues:
            self._kernel.at(due.at_s + HOP_S, _ARRIVAL, self._arrive, due)
        self.open = n_open = self.open + len(dues) - 1
        if not n_open:
            self._kernel.halt()

    def rejected(self, exchange: Exchange, now_s: float) -> None:
        """The turn is impossible: it is given up."""
        self._give_up(exchange, now_s)

    def failed(self, exchange: Exchange, now_s: float, *, retry_after_s: float | None) -> None:
        """The try ended with an error: try again later, or give up."""
        if exchange.tries >= TRIES_MAX:
            self._give_up(exchange, now_s)
            return
        delay_s = retry_after_s
        if delay_s is None or not 0.0 < delay_s <= RETRY_AFTER_S_MAX:
            delay_s = min(BACKOFF_S_MAX, BACKOFF_S * 2.0 ** (exchange.tries - 1))
            delay_s *= 1.0 - BACKOFF_JITTER * self._dice.random()
        exchange.tries += 1
        self._recording.repeated()
        self._kernel.at(now_s + 2 * HOP_S + delay_s, _ARRIVAL, self._try, exchange)

    # Turns

    def _next_arrival(self) -> None:
        due = next(self._arrivals, None)
        if due is not None:
            self.open += 1
            self._kernel.at(due.at_s + HOP_S, _ARRIVAL, self._arrive_in_order, due)

    def _arrive_in_order(self, due: Due) -> None:
        self._next_arrival()
        self._arrive(due)

    def _arrive(self, due: Due) -> None:
        """A turn comes to its router for the first time."""
        due_s, turn = due
        prompt = self._play.prompt(turn)
        exchange = Exchange(turn, due_s, prompt)
        exchange.row = row = self._rows.add(
            due_s, turn.prompt_tokens, turn.output_tokens, prompt.ceiling_tokens
        )
        if self._from_s <= due_s < self._until_s:
            exchange.is_measured = True
            self.waiting += 1
        self.unfinished[row] = exchange
        self._checks.sent(exchange, prompt)
        self._try(exchange)

    def _try(self, exchange: Exchange) -> None:
        doors, edge = self._doors, self.edge
        if len(doors) == 1:
            door = doors[0] if doors[0].is_open else None
        else:
            door = self._door(exchange.turn.session_key)
        exchange.door = door
        assert edge is not None, "clients start with an edge"
        if door is None:
            self.failed(exchange, self._kernel.now_s, retry_after_s=None)
        else:
            edge.start(exchange)

    def _door(self, session_key: str) -> Door | None:
        """Which of several routers a session's request goes to; None if there is none."""
        doors = self._doors
        if self._is_spread_by_session:
            route = self._routes.get(session_key)
            if route is None:
                names = {str(door.number): door for door in doors if door.is_open}
                if not names:
                    return None
                route = self._routes[session_key] = names[rank(session_key, list(names))[0]]
            return route
        standing = [door for door in doors if door.is_open]
        return self._dice.choice(standing) if standing else None

    def _give_up(self, exchange: Exchange, now_s: float) -> None:
        self._recording.gave_up(exchange.row)
        if not exchange.has_token:
            self.waits_no_longer(exchange)
        self.over(exchange, now_s)

"""What several routers share in a run: the store between them, and each router's part as it is live.

Words take ``DELAY_S`` to the others; a session is read at once, as the few tenths of a millisecond that it
takes change no decision. While the store is away, or a router cannot reach it, nothing is told and nothing read:
the rules of ``router/control/sharing`` in virtual time, with the same desk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.state.shared.desk import Desk
from sim.kernel import Rank
from sim.rng import stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.core import RouterCore
    from router.state.shared.desk import Asked, Row
    from sim.kernel import Kernel

PUBLISH_S: Final = 0.2
HURRY_S: Final = 0.02
"""After a session came that was not known: its home is told soon."""

DELAY_S: Final = 0.001
WALL_S: Final = 1_700_000_000.0
"""What clocks show at a run's beginning, those of one that is skewed more or less."""


class SimStore:
    """The store between routers; ``is_away`` and the routers that are ``cut`` off are faults' doing."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.links: dict[int, SimLink] = {}
        self.cut: set[int] = set()
        self.skews_s: dict[int, float] = {}
        self.is_away = False

    def lose(self) -> None:
        """It is gone, with all it knew."""
        self.is_away = True
        self.rows.clear()

    def write(self, rows: list[Row]) -> None:
        """Keep what is not older than what is there."""
        for row in rows:
            known = self.rows.get(row.key)
            if known is None or (row.version, row.turn) >= (known.version, known.turn):
                self.rows[row.key] = row


class SimLink:
    """One router's link to the store; ``catch_up`` is called before its core is told anything."""

    def __init__(
        self,
        number: int,
        core: RouterCore,
        kernel: Kernel,
        store: SimStore,
        *,
        seed: int,
        catch_up: Callable[[float], None],
    ) -> None:
        self._number = number
        self._kernel = kernel
        self._store = store
        self._catch_up = catch_up
        dice = stream(seed, f"sharing/{number}")
        self.desk = Desk(core, f"router-{number}-{kernel.now_s:g}", dice)
        self.desk.listen(kernel.now_s)
        self._was_away = False
        self._is_hurried = False
        self._is_over = False
        store.links[number] = self
        kernel.at(kernel.now_s + PUBLISH_S * dice.random(), Rank.POLL, self._speak, None)

    def look(self, facts: Asked, now_s: float) -> None:
        """Learn what the store knows of a session that is not known well here."""
        key = self.desk.wanted(facts)
        if key is None or self._is_away:
            return
        row = self._store.rows.get(key)
        if row is not None:
            self.desk.found(facts.session_key, row.value, now_s, self._wall_s)
        if not self._is_hurried:
            self._is_hurried = True
            self._kernel.at(now_s + HURRY_S, Rank.POLL, self._hurry, None)

    def stop(self) -> None:
        """This router is lost."""
        self._is_over = True
        if self._store.links.get(self._number) is self:
            del self._store.links[self._number]

    @property
    def _is_away(self) -> bool:
        return self._store.is_away or self._number in self._store.cut

    @property
    def _wall_s(self) -> float:
        return WALL_S + self._kernel.now_s + self._store.skews_s.get(self._number, 0.0)

    def _speak(self, _: None) -> None:
        if not self._is_over:
            self._kernel.at(self._kernel.now_s + PUBLISH_S, Rank.POLL, self._speak, None)
            self._say()

    def _hurry(self, _: None) -> None:
        self._is_hurried = False
        if not self._is_over:
            self._say()

    def _say(self) -> None:
        kernel, store, desk = self._kernel, self._store, self.desk
        now_s = kernel.now_s
        if self._is_away:
            self._was_away = desk.is_deaf = True
            desk.drop()
            return
        if self._was_away:
            self._was_away = False
            desk.listen(now_s)
            desk.heal(now_s)
        desk.settle(now_s)
        word = desk.word(now_s, self._wall_s)
        store.write(word.rows)
        if word.message is not None:
            kernel.at(now_s + DELAY_S, Rank.DELIVERY, self._told, word.message)

    def _told(self, message: bytes) -> None:
        """A word reaches the others."""
        for number, link in list(self._store.links.items()):
            if number != self._number:
                link.hear(message)

    def hear(self, message: bytes) -> None:
        """Another router's word arrives."""
        if self._is_away or self.desk.is_deaf:
            return
        now_s = self._kernel.now_s
        self._catch_up(now_s)
        self.desk.hear(message, now_s, self._wall_s)

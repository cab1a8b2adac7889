"""One router's part in what routers share: what it has to say and to store, and what it is told.

No I/O and no clock: ``router/control/sharing`` drives it over a store, the simulator in virtual time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from router.state.shared.feed import heard, loads_of, said
from router.state.shared.values import packed, pin_key, told, unpacked

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from router.state.fleet.ledger import Ledger
    from router.state.sessions.pins import Pin, Pins
    from router.state.shared.feed import LoadRow
    from router.state.shared.peers import Peers

_PINS_A_TIME: Final = 500
_ALONE_S: Final = 10.0
_TOLD_KEY_MAX: Final = 512
_ROUTERS_KNOWN_MAX: Final = 256
_KEEP_ALIVE_SHARE: Final = 3
"""What is in flight is told anew this often within its time to live, though nothing has changed."""


class Core(Protocol):
    """What is read of a router's core, and told to it."""

    @property
    def pins(self) -> Pins:
        """Its sessions."""

    @property
    def ledger(self) -> Ledger:
        """What it has in flight."""

    @property
    def peers(self) -> Peers:
        """What it is told."""


class Asked(Protocol):
    """What is read of a request's facts."""

    session_key: str
    bound_to: str

    @property
    def is_turn(self) -> bool:
        """It generates."""


class Row(NamedTuple):
    """A session to be stored: its name there, its value, and by what a store tells newer from older."""

    session_key: str
    key: str
    value: bytes
    version: int
    turn: int


class Word(NamedTuple):
    """What is to be said and stored now; no ``message`` if all was said before, ``vector`` is it without sessions."""

    message: bytes | None
    vector: bytes
    rows: list[Row]


@dataclass(slots=True, frozen=True)
class DeskParameters:
    """``ttl_s`` is how long what is in flight holds when nothing more is heard.

    After a store lost what it knew it is given all live sessions anew, within ``heal_s``, beginning after
    up to ``jitter_s``: several routers do so at once, the last of them up to ``behind_s`` after the first. ``is_gapless``: a message that does not come was lost, and
    what it said is to be asked for.
    """

    ttl_s: float = 2.0
    heal_s: float = 4.0
    jitter_s: float = 1.0
    behind_s: float = 1.5
    is_gapless: bool = True


@dataclass(slots=True)
class DeskCounts:
    """What came of it, in sessions; ``gaps``: times messages were missed; ``unread`` ones could not be read."""

    said: int = 0
    told: int = 0
    stored: int = 0
    healed: int = 0
    found: int = 0
    gaps: int = 0
    unread: int = 0


@dataclass(slots=True)
class Desk:
    """Reads a core's news and tells it others'; ``router`` is this router's name among them.

    Nothing is kept that grows: of a session only the last state is news, and a store that is away is told
    nothing (``drop``) and all live sessions when it is back (``heal``). ``is_deaf``: others' words do not come.
    ``renewed`` and ``has_orders`` are said with the next word, and ``on_fleet`` is called with those of others.
    ``has_others`` as far as is known: unless it has listened for a while and heard nobody, there are some.
    """

    core: Core
    router: str
    dice: random.Random
    parameters: DeskParameters = field(default_factory=DeskParameters)
    counts: DeskCounts = field(default_factory=DeskCounts)
    is_deaf: bool = True
    has_others: bool = True
    renewed: dict[str, None] = field(default_factory=dict)
    has_orders: bool = False
    on_fleet: Callable[[list[str], bool], None] | None = None
    _number: int = 0
    _loads: list[LoadRow] = field(default_factory=list)
    _said_s: float = -inf
    _listening_s: float = inf
    _numbers: dict[str, int] = field(default_factory=dict)
    _doubted_s: float = -inf
    _healing: deque[Pin] = field(default_factory=deque)
    _heal_from_s: float = inf
    _heal_until_s: float = inf
    _apart_until_s: float = -inf

    def __post_init__(self) -> None:
        self.core.pins.news = {}

    # What is said

    def word(self, now_s: float, wall_s: float) -> Word:
        """What has changed since the last word; ``wall_s`` is the present time since 1970."""
        if now_s - self._listening_s > _ALONE_S:
            self.has_others = bool(self._numbers)
        pins = self._news()
        rows: list[Row] = []
        news: list[tuple[str, bytes]] = []
        for pin in pins:
            row = _row(pin, now_s, wall_s)
            rows.append(row)
            if len(pin.key) <= _TOLD_KEY_MAX:
                news.append((pin.key, row.value))
        self.counts.stored += len(rows)
        rows += self._healed(now_s, wall_s)
        loads = [
            (
                name,
                load.inflight,
                load.inflight_tokens,
                load.decoding,
                load.backlog_us,
                load.prefill_tokens,
            )
            for name, load in self.core.ledger.loads()
            if load.inflight
        ]
        ttl_s = self.parameters.ttl_s
        is_due = now_s - self._said_s >= ttl_s / _KEEP_ALIVE_SHARE
        renewed, has_orders = list(self.renewed), self.has_orders
        if not (news or renewed or has_orders or is_due or loads != self._loads):
            return Word(None, b"", rows)
        self._loads, self._said_s = loads, now_s
        self._number += 1
        self.counts.said += len(news)
        name, number = self.router, self._number
        vector = message = said(name, number, ttl_s=ttl_s, loads=loads, pins=[])
        if news or renewed or has_orders:
            self.renewed.clear()
            self.has_orders = False
            message = said(
                name,
                number,
                ttl_s=ttl_s,
                loads=loads,
                pins=news,
                renewed=renewed,
                has_orders=has_orders,
            )
        return Word(message, vector, rows)

    def row(self, pin: Pin, now_s: float, wall_s: float) -> Row:
        """A session as it is stored."""
        return _row(pin, now_s, wall_s)

    def part(self, *, is_lost: bool = True) -> None:
        """What others know cannot be learned now: sessions have the homes that any router would choose.

        ``is_lost``: and nor at once when the store is heard again.
        """
        if self.has_others and not self.core.peers.is_apart:
            self.core.peers.part(is_apart=True)
        if is_lost:
            self._apart_until_s = inf

    def reach(self) -> None:
        """What is said is heard: sessions have homes by price again."""
        if self.core.peers.is_apart:
            self.core.peers.part(is_apart=False)

    def settle(self, now_s: float) -> None:
        """What is said is heard, and was stored: ``reach`` once others have told what this router cannot know.

        A session that another one served meanwhile is in the store when that one has healed it. Until
        then it would be new here, and get a second home by price.
        """
        if self._apart_until_s == inf:
            p = self.parameters
            self._apart_until_s = now_s + p.behind_s + p.jitter_s + p.heal_s
        if now_s >= self._apart_until_s:
            self.reach()

    def drop(self) -> None:
        """Nobody listens: what is news now is told when that is over, with all the rest."""
        self.part()
        if self.core.pins.news:
            self.core.pins.news.clear()
        self._healing.clear()
        self._heal_from_s = inf

    def heal(self, now_s: float) -> None:
        """The store may have lost what it knew: give it all live sessions that are this router's to tell of."""
        numbers, pins = self._numbers, self.core.pins.live()
        self._healing = deque(pin for pin in pins if pin.told_by not in numbers)
        self._heal_from_s = now_s + self.dice.random() * self.parameters.jitter_s
        self._heal_until_s = self._heal_from_s + self.parameters.heal_s

    # What is told

    def hear(self, data: bytes, now_s: float, wall_s: float) -> bool:
        """Take another router's message; True if it is one of our own that came back."""
        message = heard(data)
        if message is None:
            self.counts.unread += 1
            return False
        name = message.router
        if name == self.router:
            return True
        before = self._numbers.get(name)
        if before is not None and message.number <= before:
            return False
        if before is None and len(self._numbers) >= _ROUTERS_KNOWN_MAX:
            del self._numbers[next(iter(self._numbers))]
        self._numbers[name] = message.number
        is_next = before is None or message.number == before + 1
        if not is_next and self.parameters.is_gapless:
            self.doubt(now_s)
        self.core.peers.loaded(name, loads_of(message), now_s, ttl_s=message.ttl_s)
        for key, value in message.pins:
            known = self.core.pins.get(key)
            home_id = None if known is None else known.home_id
            self.core.peers.pinned(
                told(key, value, wall_s=wall_s, home_id=home_id, told_by=name), now_s
            )
        if self.on_fleet is not None and (message.renewed or message.has_orders):
            self.on_fleet(message.renewed, message.has_orders)
        self.counts.told += len(message.pins)
        return False

    def doubt(self, now_s: float) -> None:
        """Words were missed: what is known of any session may be old."""
        self._doubted_s = now_s
        self.counts.gaps += 1

    def listen(self, now_s: float) -> None:
        """Others' words come from now on: who said how much before is not known."""
        self.is_deaf = False
        self._listening_s = now_s
        self._numbers.clear()
        if len(self.core.pins):
            self.doubt(now_s)

    # What is asked

    def wanted(self, facts: Asked) -> str | None:
        """The name by which a request's session is to be looked for in the store; None if it is known well here."""
        if not facts.is_turn or facts.bound_to:
            return None
        pin = self.core.pins.get(facts.session_key)
        if pin is not None and pin.used_s >= self._doubted_s and not self.is_deaf:
            return None
        return pin_key(facts.session_key)

    def found(self, session_key: str, data: bytes, now_s: float, wall_s: float) -> bool:
        """The store knew a session; False if that cannot be read."""
        value = unpacked(data)
        if value is None:
            self.counts.unread += 1
            return False
        known = self.core.pins.get(session_key)
        home_id = None if known is None else known.home_id
        pin = told(session_key, value, wall_s=wall_s, home_id=home_id, told_by="store")
        self.core.peers.pinned(pin, now_s)
        self.counts.found += 1
        return True

    def refused(self, row: Row, data: bytes, now_s: float, wall_s: float) -> None:
        """The store has a newer one of a session that it was given: it counts, and is told and stored again."""
        pin, value = self.core.pins.get(row.session_key), unpacked(data)
        if pin is None or value is None:
            return
        self.found(row.session_key, data, now_s, wall_s)
        news = self.core.pins.news
        if news is not None and (pin.version, pin.turn) > (value.version, value.turn):
            news[pin.key] = pin

    # Parts

    def _news(self) -> list[Pin]:
        news = self.core.pins.news
        assert news is not None, "a desk turns the news on"
        found = list(islice(news.values(), _PINS_A_TIME))
        if len(found) == len(news):
            news.clear()
        else:
            for pin in found:
                del news[pin.key]
        return found

    def _healed(self, now_s: float, wall_s: float) -> list[Row]:
        """The next of the sessions that the store is given again, as many as are due."""
        healing = self._healing
        if not healing or now_s < self._heal_from_s:
            return []
        left_s = max(self._heal_until_s - now_s, 0.2)
        n = min(len(healing), _PINS_A_TIME, 1 + int(len(healing) * 0.25 / left_s))
        self.counts.healed += n
        return [_row(healing.popleft(), now_s, wall_s) for _ in range(n)]


def _row(pin: Pin, now_s: float, wall_s: float) -> Row:
    value = packed(pin, now_s=now_s, wall_s=wall_s)
    return Row(pin.key, pin_key(pin.key), value, pin.version, pin.turn)

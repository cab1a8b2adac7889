"""Who may take a request for a model, where not all replicas serve the same."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

from router.state.fleet.candidates import Candidate, Eligible
from router.state.health.table import HOPED_FOR, KEEPING, TAKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.policy.ring import Rings
    from router.state.health.table import State

_NOBODYS: Final = "\0"
"""Stands for every model that no replica names."""


class Serving(Candidate, Protocol):
    """What is read of a replica here."""

    @property
    def state(self) -> State:
        """Its health."""

    @property
    def serves(self) -> tuple[str, ...]:
        """Its models and adapters, none until it has said."""


class Offers:
    """How many replicas serve just the same."""

    __slots__ = ("_counts", "is_mixed")

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, ...]] = Counter()
        self.is_mixed = False

    def change(self, before: tuple[str, ...] | None, after: tuple[str, ...] | None) -> None:
        """A replica served ``before`` and serves ``after``; None if it was or is no member."""
        for serves, step in ((before, -1), (after, 1)):
            if serves is not None:
                self._counts[serves] += step
                if not self._counts[serves]:
                    del self._counts[serves]
        self.is_mixed = len(self._counts) > 1


class ByModel:
    """The eligible replicas of each model; made anew when replicas, states or models change.

    ``loads_changed`` and ``homes_changed`` name the replicas whose load or live sessions changed
    since they were last read here, which empties them; the orders of every model are told.
    """

    __slots__ = ("_by_model", "_changed", "_known", "_replicas", "_rings")

    def __init__(
        self,
        replicas: Sequence[Serving],
        rings: Rings,
        *,
        loads_changed: dict[str, None],
        homes_changed: dict[str, None],
    ) -> None:
        self._replicas = replicas
        self._rings = rings
        self._known = {name for r in replicas for name in r.serves}
        self._by_model: dict[str, Eligible] = {}
        self._changed: list[tuple[dict[str, None], list[dict[str, None]]]] = [
            (loads_changed, []),
            (homes_changed, []),
        ]

    def of(self, model: str) -> Eligible:
        """Those that may serve ``model``, all for ""; of one that nobody names, who has not said."""
        for source, targets in self._changed:
            if source:
                for target in targets:
                    target.update(source)
                source.clear()
        key = model if not model or model in self._known else _NOBODYS
        found = self._by_model.get(key)
        if found is None:
            loads: dict[str, None] = {}
            homes: dict[str, None] = {}
            self._changed[0][1].append(loads)
            self._changed[1][1].append(homes)
            found = self._by_model[key] = Eligible(
                eligible([r for r in self._replicas if may_serve(r, key)]),
                self._rings,
                loads_changed=loads,
                homes_changed=homes,
            )
        return found


def may_serve(replica: Serving, model: str) -> bool:
    """It serves this model, or has not said what it serves; "" is any model."""
    return not model or not replica.serves or model in replica.serves


def eligible(replicas: Sequence[Serving]) -> list[Serving]:
    """Those that take any request; else those that keep their own sessions; else those that stand still."""
    for states in (TAKING, KEEPING, HOPED_FOR):
        found = [r for r in replicas if r.state in states]
        if found:
            return found
    return []

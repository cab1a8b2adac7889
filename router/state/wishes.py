"""What an operator wishes of replicas, kept apart from what their sources say of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

WEIGHT_MIN: Final = 0.01
WEIGHT_MAX: Final = 100.0

_WISHES_MAX: Final = 10_000
"""Replicas that are remembered, gone ones among them: ids that change with every pod add up."""


@dataclass(slots=True, frozen=True)
class Wish:
    """Of one replica: its weight, and its limit of requests in flight (None: none of the operator's)."""

    weight: float = 1.0
    inflight_max: int | None = None


_NONE: Final = Wish()


@dataclass(slots=True)
class Wishes:
    """By replica id; they stand until they are taken back, whether the replica is there or not.

    At most ``wishes_max`` are kept, the oldest go first.
    """

    wishes_max: int = _WISHES_MAX
    _by_id: dict[str, Wish] = field(default_factory=dict)

    def of(self, replica_id: str) -> Wish:
        """What is wished of a replica; nothing in particular where no operator said so."""
        return self._by_id.get(replica_id, _NONE)

    def all(self) -> list[tuple[str, Wish]]:
        """Every wish there is, by replica, oldest first."""
        return list(self._by_id.items())

    def weigh(self, replica_id: str, weight: float) -> None:
        """Wish another weight."""
        self._set(replica_id, replace(self.of(replica_id), weight=weight))

    def limit(self, replica_id: str, inflight_max: int | None) -> None:
        """Wish another limit; None takes it back."""
        self._set(replica_id, replace(self.of(replica_id), inflight_max=inflight_max))

    def _set(self, replica_id: str, wish: Wish) -> None:
        self._by_id.pop(replica_id, None)
        if wish != _NONE:
            self._by_id[replica_id] = wish
            if len(self._by_id) > self.wishes_max:
                del self._by_id[next(iter(self._by_id))]

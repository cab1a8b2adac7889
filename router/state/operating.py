"""What an operator does to a running fleet, besides draining and removing: see ``Members`` for those."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from router.state.fleet.homes import is_usable
from router.state.wishes import WEIGHT_MAX, WEIGHT_MIN

if TYPE_CHECKING:
    from router.state.cache.prefix_index import PrefixIndex
    from router.state.fleet.fleet import Fleet
    from router.state.fleet.replica import Replica
    from router.state.sessions.pins import Pin, Pins


class Operating:
    """Weights, limits, fixed sessions and forgotten caches, applied to the fleet, the pins and the index."""

    def __init__(self, fleet: Fleet, pins: Pins, index: PrefixIndex) -> None:
        self._fleet = fleet
        self._pins = pins
        self._index = index

    def weigh(self, replica_id: str, weight: float) -> Replica | None:
        """Give a replica another share of the work than its peers, which have 1. None if it is not known.

        What it does is priced at 1/weight. The weight stands when the replica leaves and comes back.
        """
        assert WEIGHT_MIN <= weight <= WEIGHT_MAX, f"a weight of {weight}"
        replica = self._fleet.get(replica_id)
        if replica is not None:
            self._fleet.wishes.weigh(replica_id, weight)
            self._fleet.follow_wish(replica)
        return replica

    def limit(self, replica_id: str, inflight_max: int | None) -> Replica | None:
        """Bound a replica's requests in flight; None takes the bound back. None if it is not known.

        Taken back, what the replica registered with counts again, else the router's own limit. Requests
        beyond a new limit end as they would; none is added to them.
        """
        assert inflight_max is None or inflight_max > 0, f"a limit of {inflight_max}"
        replica = self._fleet.get(replica_id)
        if replica is not None:
            self._fleet.wishes.limit(replica_id, inflight_max)
            self._fleet.follow_wish(replica)
        return replica

    def forget(self, replica_id: str) -> int | None:
        """Believe a replica's cache to be empty; answers the canonical bytes it held. None if not known."""
        if self._fleet.get(replica_id) is None:
            return None
        held_bytes = self._index.held_bytes(replica_id)
        self._index.clear(replica_id)
        return held_bytes

    def fix(
        self, session_key: str, replica_id: str, now_s: float, *, for_s: float | None = None
    ) -> Pin | None:
        """Pin a session: all its turns go to this replica while it can take them, whatever it costs.

        It holds until it is released, ``for_s`` from now on, or as long as the session is remembered.
        The replica becomes the session's home. None if the session or the replica is not known.
        """
        pin = self._rehomed(session_key, replica_id, now_s)
        if pin is not None:
            self._changed(pin)
            pin.fixed_id = replica_id
            pin.fixed_until_s = inf if for_s is None else now_s + for_s
        return pin

    def release(self, session_key: str) -> Pin | None:
        """Unpin a session: it keeps its home and may leave it again. None if it is not known."""
        pin = self._pins.get(session_key)
        if pin is not None:
            self._changed(pin)
            pin.fixed_id, pin.fixed_until_s = "", inf
        return pin

    def move(self, session_key: str, replica_id: str, now_s: float) -> Pin | None:
        """Make a replica a session's home from now on. None if either is not known.

        Further turns go there unless the policy moves the session again. A pin to another replica is
        released: the last word counts.
        """
        pin = self._rehomed(session_key, replica_id, now_s)
        if pin is not None:
            self._changed(pin)
            if pin.fixed_id != replica_id:
                pin.fixed_id, pin.fixed_until_s = "", inf
        return pin

    def is_usable(self, replica_id: str) -> bool:
        """Whether a session that is sent there would be served there now."""
        return is_usable(self._fleet, replica_id)

    def _changed(self, pin: Pin) -> None:
        """What an operator says of a session is news, whether or not its home is another one."""
        pin.version += 1
        if self._pins.news is not None:
            self._pins.news[pin.key] = pin

    def _rehomed(self, session_key: str, replica_id: str, now_s: float) -> Pin | None:
        pin = self._pins.get(session_key)
        if pin is None or self._fleet.get(replica_id) is None:
            return None
        self._pins.rehome(pin, replica_id, now_s)
        return pin

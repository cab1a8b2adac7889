"""What policies share: the choice among equal ones, and who to fall back on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hashing.rendezvous import first as rendezvous_first
from router.policy.view import Price, Ranking

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from router.policy.view import FleetView, ReplicaView

RANKED_MAX: Final = 4
"""The chosen replica and three to fall back on; a retry asks anew, with the fleet as it is then."""

_EQUALS_MAX: Final = 16
"""Of more replicas than that with equally few requests, rendezvous chooses among so many."""

_FREE: Final = Price()


def preferred(key: str, tied: Sequence[ReplicaView]) -> ReplicaView:
    """The one of equal replicas that rendezvous hashing ranks first for ``key``."""
    if len(tied) == 1:
        return tied[0]
    by_id = {replica.replica_id: replica for replica in tied}
    return by_id[rendezvous_first(key, by_id, 1)[0]]


def least(key: str, scored: Iterable[tuple[float, ReplicaView]]) -> ReplicaView:
    """The replica with the least score; equal ones by rendezvous."""
    rows = list(scored)
    lowest = min([score for score, _ in rows])
    return preferred(key, [replica for score, replica in rows if score == lowest])


def least_inflight(fleet: FleetView, key: str) -> ReplicaView:
    """The candidate with the fewest requests in flight; equal ones by rendezvous."""
    rows = fleet.least_inflight(_EQUALS_MAX, key)
    fewest = rows[0].inflight
    return preferred(key, [replica for replica in rows if replica.inflight == fewest])


def unpriced(ids: Iterable[str], reason: str) -> Ranking:
    """A ranking without prices."""
    ranked = tuple(ids)
    return Ranking(ranked, reason, {ranked[0]: _FREE})


def chosen(replica: ReplicaView, fleet: FleetView, key: str, reason: str) -> Ranking:
    """A ranking without prices: the chosen replica, then those with the fewest requests in flight."""
    first = replica.replica_id
    rest = [r.replica_id for r in fleet.least_inflight(RANKED_MAX, key) if r is not replica]
    return Ranking((first, *rest[: RANKED_MAX - 1]), reason, {first: _FREE})

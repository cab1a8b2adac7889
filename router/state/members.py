"""Who is in the fleet, how it fares, and what that means for what it is believed to hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.state.health import Event, State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.state.fleet import Fleet, Observation, Replica, ReplicaSpec
    from router.state.prefix_index import PrefixIndex
    from router.state.rates import TokenRatio


class Members:
    """Joins, leaves, probes and load reports, applied to the fleet view and the prefix index."""

    def __init__(self, fleet: Fleet, index: PrefixIndex, ratio: TokenRatio) -> None:
        self._fleet = fleet
        self._index = index
        self._ratio = ratio

    def join(self, spec: ReplicaSpec, now_s: float) -> Replica:
        """A replica was named or registered (again)."""
        replica = self._fleet.join(spec, now_s)
        self._set_capacity(replica)
        return replica

    def leave(self, replica_id: str) -> bool:
        """Forget a replica at once; False if it was not known."""
        self._index.forget(replica_id)
        return self._fleet.leave(replica_id) is not None

    def renew(self, replica_id: str, now_s: float) -> Replica | None:
        """A heartbeat: the lease starts anew. None if the replica is not known."""
        replica = self._fleet.get(replica_id)
        if replica is not None and replica.spec.lease_s is not None:
            replica.lease_until_s = now_s + replica.spec.lease_s
        return replica

    def described(
        self,
        replica_id: str,
        *,
        capacity_tokens: int | None,
        profile: str | None,
        models: Iterable[str],
    ) -> None:
        """A replica said what it is; what it was registered with goes first."""
        replica = self._fleet.get(replica_id)
        if replica is None:
            return
        if capacity_tokens and not replica.spec.capacity_tokens:
            replica.capacity_tokens = capacity_tokens
        replica.profile = replica.spec.profile or profile
        replica.models = tuple(models)
        self._set_capacity(replica)

    def heard(self, replica_id: str, event: Event, now_s: float) -> tuple[State, State] | None:
        """A probe or a request told about a replica's health; the states before and after."""
        replica = self._fleet.get(replica_id)
        if replica is None:
            return None
        before = self._fleet.follow(replica, event)
        if event is Event.PROBE_OK:
            replica.ready_s = now_s
        if replica.state is State.DOWN and before is not State.DOWN:
            # The process is gone or hung: what it held in memory will not be there again.
            self._index.clear(replica_id)
            replica.foreign_inflight, replica.foreign_backlog_s = 0, 0.0
        return before, replica.state

    def observed(self, replica_id: str, seen: Observation) -> None:
        """A replica reported its load. Only what exceeds our own share is new to the ledger."""
        replica = self._fleet.get(replica_id)
        if replica is None:
            return
        replica.observed = seen
        replica.foreign_inflight = max(0, seen.running + seen.waiting - seen.ours)
        reported_s = replica.rate.linear_s * seen.waiting_uncached_tokens
        foreign_s = max(0.0, reported_s - seen.ours_backlog_s)
        replica.foreign_backlog_s = foreign_s if replica.foreign_inflight else 0.0

    def expire(self, now_s: float) -> list[str]:
        """Remove the replicas whose lease ran out; answer their ids."""
        ended = [
            replica.replica_id
            for replica in self._fleet.replicas()
            if replica.lease_until_s is not None and replica.lease_until_s < now_s
        ]
        for replica_id in ended:
            self.leave(replica_id)
        return ended

    def _set_capacity(self, replica: Replica) -> None:
        """The index keeps a replica's capacity in the bytes it counts in."""
        capacity_bytes = int(replica.capacity_tokens * self._ratio.mean_bytes_per_token)
        self._index.set_capacity(replica.replica_id, capacity_bytes)

"""Who is in the fleet, how it fares, and what that means for what it is believed to hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.state.health import Event, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.state.fleet import Description, Fleet, Observation, Replica, ReplicaSpec
    from router.state.prefix_index import PrefixIndex
    from router.state.rates import TokenRatio

    StateListener = Callable[[str, State, State, Event], None]
    """Told of a change: replica, state before, state now, what caused it."""

_OBSERVATION_S_MAX: Final = 10.0
"""A load report older than that says nothing about now."""


class Members:
    """Joins, leaves, probes and load reports, applied to the fleet view and the prefix index."""

    def __init__(
        self,
        fleet: Fleet,
        index: PrefixIndex,
        ratio: TokenRatio,
        on_change: StateListener | None = None,
    ) -> None:
        self._fleet = fleet
        self._index = index
        self._ratio = ratio
        self._on_change = on_change

    def join(self, spec: ReplicaSpec, now_s: float) -> Replica:
        """A replica was named or registered (again); at another address it is another process."""
        known = self._fleet.get(spec.replica_id)
        if known is not None and (known.spec.host, known.spec.port) != (spec.host, spec.port):
            self._index.clear(spec.replica_id)
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

    def described(self, replica_id: str, said: Description) -> None:
        """A replica said what it is; what it was registered with goes first."""
        replica = self._fleet.get(replica_id)
        if replica is None:
            return
        if said.capacity_tokens and not replica.spec.capacity_tokens:
            replica.capacity_tokens = said.capacity_tokens
        replica.profile = replica.spec.profile or said.profile
        replica.models = said.models
        replica.reports_cached = said.reports_cached
        self._set_capacity(replica)

    def heard(self, replica_id: str, event: Event, now_s: float) -> State | None:
        """A probe or a request told about a replica's health; answers the state before."""
        replica = self._fleet.get(replica_id)
        if replica is None:
            return None
        before = self._fleet.follow(replica, event)
        if event is Event.PROBE_OK:
            replica.ready_s = now_s
        if replica.state is State.DOWN and before is not State.DOWN:
            # The process is gone or hung: what it held in memory will not be there again.
            self._index.clear(replica_id)
            _forget_foreign(replica)
        if replica.state is not before and self._on_change is not None:
            self._on_change(replica_id, before, replica.state, event)
        return before

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
        """Remove the replicas whose lease ran out; answer their ids. Old load reports are dropped."""
        replicas = self._fleet.replicas()
        ended = [
            replica.replica_id
            for replica in replicas
            if replica.lease_until_s is not None and replica.lease_until_s < now_s
        ]
        for replica in replicas:
            # The ratio that turns tokens into the index's bytes is learned as requests end.
            self._set_capacity(replica)
            seen = replica.observed
            if seen is not None and now_s - seen.seen_s > _OBSERVATION_S_MAX:
                _forget_foreign(replica)
        for replica_id in ended:
            self.leave(replica_id)
        return ended

    def _set_capacity(self, replica: Replica) -> None:
        """The index keeps a replica's capacity in the bytes it counts in."""
        capacity_bytes = int(replica.capacity_tokens * self._ratio.mean_bytes_per_token)
        self._index.set_capacity(replica.replica_id, capacity_bytes)


def _forget_foreign(replica: Replica) -> None:
    replica.foreign_inflight, replica.foreign_backlog_s = 0, 0.0

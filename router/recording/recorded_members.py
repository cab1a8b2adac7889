"""What outsiders tell a core of its members, written to a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from router.recording.records import Described, Drain, Heard, Join, Leave, Observed, Renew, Undrain
from router.state.members.members import Members

if TYPE_CHECKING:
    from router.core import RouterCore
    from router.recording.journal import Journal
    from router.recording.seal import Seal
    from router.state.fleet.replica import Description, Observation, Replica, ReplicaSpec
    from router.state.health.table import Event, State
    from router.state.members.conduct import StateListener


class RecordedMembers(Members):
    """What outsiders tell the core of its members; the core itself uses the plain ones."""

    def __init__(
        self, core: RouterCore, seal: Seal, journal: Journal, on_change: StateListener | None
    ) -> None:
        super().__init__(core.fleet, core.index, core.ratio, on_change)
        self._seal = seal
        self._journal = journal

    @override
    def join(self, spec: ReplicaSpec, now_s: float) -> Replica:
        if self._journal.is_open:
            self._journal.write(
                Join(
                    now_s=now_s,
                    replica_id=spec.replica_id,
                    host=spec.host,
                    port=spec.port,
                    source=spec.source,
                    capacity_tokens=spec.capacity_tokens,
                    profile=spec.profile,
                    inflight_max=spec.inflight_max,
                    lease_s=spec.lease_s,
                    rate=None if spec.rate is None else spec.rate.terms,
                )
            )
        return super().join(spec, now_s)

    @override
    def leave(self, replica_id: str) -> bool:
        if self._journal.is_open:
            self._journal.write(Leave(replica_id))
        return super().leave(replica_id)

    @override
    def drain(
        self,
        replica_id: str,
        now_s: float,
        *,
        deadline_s: float | None = None,
        leaves: bool = False,
    ) -> Replica | None:
        if self._journal.is_open:
            self._journal.write(Drain(now_s, replica_id, deadline_s, leaves))
        return super().drain(replica_id, now_s, deadline_s=deadline_s, leaves=leaves)

    @override
    def undrain(self, replica_id: str, now_s: float) -> Replica | None:
        if self._journal.is_open:
            self._journal.write(Undrain(now_s, replica_id))
        return super().undrain(replica_id, now_s)

    @override
    def renew(self, replica_id: str, now_s: float) -> Replica | None:
        if self._journal.is_open:
            self._journal.write(Renew(now_s, replica_id))
        return super().renew(replica_id, now_s)

    @override
    def described(self, replica_id: str, said: Description) -> None:
        if self._journal.is_open:
            self._journal.write(
                Described(
                    replica_id=replica_id,
                    capacity_tokens=said.capacity_tokens,
                    profile=said.profile,
                    models=tuple([self._seal.model(name) for name in said.models]),
                    reports_cached=said.reports_cached,
                    adapters=tuple([self._seal.model(name) for name in said.adapters]),
                    n_caches=said.n_caches,
                    started=said.started,
                    chunk_tokens=said.chunk_tokens,
                    rate=None if said.rate is None else said.rate.terms,
                )
            )
        super().described(replica_id, said)

    @override
    def heard(self, replica_id: str, event: Event, now_s: float) -> State | None:
        if self._journal.is_open:
            self._journal.write(Heard(now_s, replica_id, event))
        return super().heard(replica_id, event, now_s)

    @override
    def observed(self, replica_id: str, seen: Observation) -> None:
        if self._journal.is_open:
            self._journal.write(
                Observed(
                    replica_id=replica_id,
                    running=seen.running,
                    waiting=seen.waiting,
                    waiting_uncached_tokens=seen.waiting_uncached_tokens,
                    seen_s=seen.seen_s,
                    ours=seen.ours,
                    ours_backlog_s=seen.ours_backlog_s,
                    used_ratio=seen.used_ratio,
                    stamp=seen.stamp,
                    prefill_tokens=seen.prefill_tokens,
                    prefill_busy_us=seen.prefill_busy_us,
                    heard_s=seen.heard_s,
                )
            )
        super().observed(replica_id, seen)

    @override
    def expire(self, now_s: float) -> list[str]:
        raise AssertionError("time passes in RouterCore.tick, which writes it down")

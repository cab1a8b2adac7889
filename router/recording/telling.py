"""Telling a core's members what a recording says that they were told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.recording.records import (
    Described,
    Drain,
    Emptied,
    Fixed,
    Heard,
    Join,
    Leave,
    Limited,
    Moved,
    Observed,
    Renew,
    Undrain,
    Weighed,
)
from router.recording.seal import name_of
from router.state.fleet.replica import Description, Observation, ReplicaSpec
from router.state.rates.prefill import PrefillRate

if TYPE_CHECKING:
    from router.recording.records import Member, Operated
    from router.state.members.members import Members
    from router.state.operating import Operating


def tell_member(members: Members, record: Member) -> None:
    """Tell members what a record says that they were told."""
    match record:
        case Join(now_s=now_s):
            members.join(_spec(record), now_s)
        case Leave(replica_id=replica_id):
            members.leave(replica_id)
        case Renew(now_s=now_s, replica_id=replica_id):
            members.renew(replica_id, now_s)
        case Drain(now_s=now_s, replica_id=replica_id):
            members.drain(replica_id, now_s, deadline_s=record.deadline_s, leaves=record.leaves)
        case Undrain(now_s=now_s, replica_id=replica_id):
            members.undrain(replica_id, now_s)
        case Heard(now_s=now_s, replica_id=replica_id, event=event):
            members.heard(replica_id, event, now_s)
        case Observed(replica_id=replica_id):
            members.observed(replica_id, _observation(record))
        case Described(replica_id=replica_id):
            members.described(replica_id, _description(record))


def tell_operating(operating: Operating, record: Operated) -> None:
    """Do what a record says that an operator did."""
    match record:
        case Weighed(replica_id=replica_id, weight=weight):
            operating.weigh(replica_id, weight)
        case Limited(replica_id=replica_id, inflight_max=inflight_max):
            operating.limit(replica_id, inflight_max)
        case Emptied(replica_id=replica_id):
            operating.forget(replica_id)
        case Fixed(now_s=now_s, replica_id=replica_id):
            key = name_of(record.session)
            if replica_id is None or now_s is None:
                operating.release(key)
            else:
                operating.fix(key, replica_id, now_s, for_s=record.for_s)
        case Moved(now_s=now_s, replica_id=replica_id):
            operating.move(name_of(record.session), replica_id, now_s)


def _description(record: Described) -> Description:
    return Description(
        capacity_tokens=record.capacity_tokens,
        profile=record.profile,
        models=tuple(name_of(model) for model in record.models),
        reports_cached=record.reports_cached,
        adapters=tuple(name_of(name) for name in record.adapters),
        n_caches=record.n_caches,
        started=record.started,
        chunk_tokens=record.chunk_tokens,
        rate=None if record.rate is None else PrefillRate(*record.rate),
    )


def _spec(record: Join) -> ReplicaSpec:
    return ReplicaSpec(
        record.replica_id,
        record.host,
        record.port,
        source=record.source,
        capacity_tokens=record.capacity_tokens,
        profile=record.profile,
        inflight_max=record.inflight_max,
        lease_s=record.lease_s,
        rate=None if record.rate is None else PrefillRate(*record.rate),
    )


def _observation(record: Observed) -> Observation:
    return Observation(
        running=record.running,
        waiting=record.waiting,
        waiting_uncached_tokens=record.waiting_uncached_tokens,
        seen_s=record.seen_s,
        ours=record.ours,
        ours_backlog_s=record.ours_backlog_s,
        used_ratio=record.used_ratio,
        stamp=record.stamp,
        prefill_tokens=record.prefill_tokens,
        prefill_busy_us=record.prefill_busy_us,
        heard_s=record.heard_s,
    )

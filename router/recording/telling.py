"""Telling a core's members what a recording says that they were told."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from router.recording.errors import RecordingError
from router.recording.records import (
    SEALED_BYTES,
    Described,
    Drain,
    Fed,
    Heard,
    Join,
    Leave,
    Observed,
    Paged,
    Renew,
    Undrain,
)
from router.recording.seal import name_of
from router.state.cache.feeds import Feeding
from router.state.cache.pages import Change
from router.state.fleet.replica import Description, Observation, ReplicaSpec

if TYPE_CHECKING:
    from router.recording.records import Member
    from router.state.fleet.members import Members


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
        case Fed() | Paged():
            _tell_pages(members, record)


def _tell_pages(members: Members, record: Fed | Paged) -> None:
    if isinstance(record, Paged):
        members.paged(record.replica_id, record.rank, _changes(record), record.now_s)
    else:
        told = Feeding(record.said, record.page_tokens, record.rank, record.n_ranks)
        members.fed(record.replica_id, told, record.now_s)


def pages_of(sealed: bytes) -> array[int]:
    """Sealed pages as the numbers that stand for them.

    Raises:
        RecordingError: they are not whole.
    """
    if len(sealed) % SEALED_BYTES:
        raise RecordingError("a record's pages are not whole; the recording is damaged")
    return array("q", sealed)


def _changes(record: Paged) -> list[Change]:
    return [
        Change(kind, medium, pages_of(before)[0] if before else None, pages_of(pages))
        for kind, medium, before, pages in record.changes
    ]


def _description(record: Described) -> Description:
    return Description(
        capacity_tokens=record.capacity_tokens,
        profile=record.profile,
        models=tuple(name_of(model) for model in record.models),
        reports_cached=record.reports_cached,
        adapters=tuple(name_of(name) for name in record.adapters),
        n_caches=record.n_caches,
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
    )

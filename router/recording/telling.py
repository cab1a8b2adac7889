"""Telling a core's members what a recording says that they were told."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from router.recording.errors import RecordingError
from router.recording.records import (
    SEALED_BYTES,
    Described,
    Drain,
    Emptied,
    Fed,
    Fixed,
    Heard,
    Join,
    Leave,
    Limited,
    Loaded,
    Moved,
    Observed,
    Paged,
    Parted,
    Renew,
    Undrain,
    Weighed,
)
from router.recording.seal import name_of
from router.state.cache.feeds import Feeding
from router.state.cache.pages import Change
from router.state.fleet.replica import Description, Observation, PeerLoad, ReplicaSpec
from router.state.rates.prefill import PrefillRate
from router.state.shared.peers import ToldPin

if TYPE_CHECKING:
    from router.recording.records import Member, Operated, Told
    from router.state.members.members import Members
    from router.state.operating import Operating
    from router.state.shared.peers import Peers


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


def tell_peers(peers: Peers, record: Told) -> None:
    """Tell what a record says that another router told."""
    if isinstance(record, Loaded):
        loads = {replica_id: PeerLoad(*load) for replica_id, *load in record.loads}
        peers.loaded(record.router, loads, record.now_s, ttl_s=record.ttl_s)
        return
    if isinstance(record, Parted):
        peers.part(is_apart=record.is_apart)
        return
    peers.pinned(
        ToldPin(
            key=name_of(record.session),
            home_id=record.home_id,
            version=record.version,
            turn=record.turn,
            tokens=record.tokens,
            prompt_tokens=record.prompt_tokens,
            prompt_bytes=record.prompt_bytes,
            output_tokens=record.output_tokens,
            tail=int.from_bytes(record.tail, "little"),
            tail_segments=record.tail_segments,
            served_id=record.served_id,
            age_s=record.age_s,
            source=record.source,
            wins=record.wins,
            told_by="",
            fixed_id=record.fixed_id,
            fixed_for_s=record.fixed_for_s,
        ),
        record.now_s,
    )


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

"""Who is in the fleet, how it fares, and what that means for what it is believed to hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.errors import Refused
from router.state.cache.keeping import Keeping
from router.state.health.progress import Progress
from router.state.health.table import Event, State
from router.state.members.answers import answered
from router.state.members.conduct import Conduct
from router.state.members.reports import observed
from router.state.rates.learner import PrefillLearner

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from router.errors import UpstreamError
    from router.state.beliefs import Beliefs, Turn
    from router.state.cache.feeds import Feeding
    from router.state.cache.held import Held
    from router.state.cache.pages import Change
    from router.state.cache.prefix_index import Mark, PrefixIndex
    from router.state.fleet.fleet import Fleet
    from router.state.fleet.replica import Description, Observation, Replica, ReplicaSpec
    from router.state.history import RequestRecord
    from router.state.members.answers import Return
    from router.state.members.conduct import StateListener
    from router.state.rates.prefill import PrefillRate
    from router.state.rates.tokens import TokenRatio

_OBSERVATION_S_MAX: Final = 10.0
"""A load report older than that says nothing about now."""

_NOT_READY_RETRY_S: Final = 2.0
_SILENT: Final = (State.STARTING, State.DOWN)
"""Two rounds of probes."""

_RATIO_STEP: Final = 0.005
"""Capacities follow the ratio of bytes to tokens in steps of half a percent."""


class Members:
    """Joins, leaves, probes and load reports, applied to the fleet view and the prefix index."""

    def __init__(
        self,
        fleet: Fleet,
        index: PrefixIndex,
        ratio: TokenRatio,
        beliefs: Beliefs,
        on_change: StateListener | None = None,
    ) -> None:
        self._fleet = fleet
        self._index = index
        self._ratio = ratio
        self._beliefs = beliefs
        self.conduct = Conduct(fleet, index, beliefs, on_change)

    def join(self, spec: ReplicaSpec, now_s: float) -> Replica:
        """A replica was named or registered (again); at another address it is another process."""
        known = self._fleet.get(spec.replica_id)
        if known is not None and (known.spec.host, known.spec.port) != (spec.host, spec.port):
            self._index.clear(spec.replica_id)
            self._beliefs.lost(spec.replica_id)
        replica = self._fleet.join(spec, now_s)
        self._set_start_rate(replica, spec.rate)
        self._set_capacity(replica)
        return replica

    def leave(self, replica_id: str) -> bool:
        """Forget a replica at once; False if it was not known."""
        self._index.forget(replica_id)
        self._beliefs.forget(replica_id)
        return self._fleet.leave(replica_id) is not None

    def drain(
        self,
        replica_id: str,
        now_s: float,
        *,
        deadline_s: float | None = None,
        leaves: bool = False,
    ) -> Replica | None:
        """Send a replica no new requests. None if it is not known.

        ``leaves``: it is removed once nothing of ours is in flight there. ``deadline_s`` from now it
        is removed whatever runs there, which goes on to its end. Asked again, the last word counts.
        """
        replica = self._fleet.get(replica_id)
        if replica is not None:
            self.conduct.heard(replica, Event.DRAIN, now_s)
            self._fleet.plan_leave(
                replica, leaves, None if deadline_s is None else now_s + deadline_s
            )
        return replica

    def undrain(self, replica_id: str, now_s: float) -> Replica | None:
        """A replica that drains may take requests again, once it is seen ready. None if not known."""
        replica = self._fleet.get(replica_id)
        if replica is not None:
            self.conduct.heard(replica, Event.UNDRAIN, now_s)
            self._fleet.plan_leave(replica, leaves=False, until_s=None)
        return replica

    def renew(self, replica_id: str, now_s: float) -> Replica | None:
        """A heartbeat: the lease starts anew. None if the replica is not known."""
        replica = self._fleet.get(replica_id)
        if replica is not None:
            self._fleet.renew(replica, now_s)
        return replica

    def described(self, replica_id: str, said: Description) -> None:
        """A replica said what it is; what it was registered with goes first."""
        replica = self._fleet.get(replica_id)
        if replica is None:
            return
        if said.started and replica.started and said.started != replica.started:
            self._index.clear(replica_id)  # another process, behind the same address
            replica.keeping, replica.progress = Keeping(), Progress()
        replica.started = said.started or replica.started
        if said.capacity_tokens and not replica.spec.capacity_tokens:
            replica.stated_tokens = said.capacity_tokens
        replica.chunk_tokens = said.chunk_tokens
        replica.has_priorities, replica.is_short_first = said.has_priorities, said.is_short_first
        self._set_start_rate(replica, replica.spec.rate or said.rate)
        replica.profile = replica.spec.profile or said.profile
        self._fleet.describe(replica, said.models, said.adapters)
        replica.reports_cached = said.reports_cached
        if replica.n_caches != said.n_caches:
            replica.n_caches = said.n_caches
            self._fleet.set_rate(replica, replica.rate)
        self._set_capacity(replica)

    def heard(self, replica_id: str, event: Event, now_s: float) -> State | None:
        """A probe or a request told about a replica's health; answers the state before."""
        replica = self._fleet.get(replica_id)
        return None if replica is None else self.conduct.heard(replica, event, now_s)

    @property
    def retry_after_s(self) -> float:
        """When a replica may have room again: the least backlog of prefill, at least a second."""
        return max(1.0, min((r.prefill_ahead_s for r in self._fleet.eligible()), default=0.0))

    def refusal(self, model: str = "") -> Refused:
        """Why nobody may take a request for this model, and when to come back."""
        if self._fleet.eligible(model):
            return Refused(
                "saturated",
                "every replica is at its limit of requests in flight; try again after the time in Retry-After",
                retry_after_s=self.retry_after_s,
            )
        known = len(self._fleet)
        if self._fleet.eligible():
            return Refused(
                "no-replica-ready",
                f"no replica that serves {model!r} is ready; try again shortly",
                retry_after_s=_NOT_READY_RETRY_S,
            )
        return Refused(
            "no-replica-ready",
            f"none of the {known} replicas this router knows is ready; try again shortly"
            if known
            else "this router knows no replica; start one and register it, or name it with --replica",
            retry_after_s=_NOT_READY_RETRY_S,
        )

    def check(self, model: str, replica_id: str) -> None:
        """See that the one replica that can serve a request answers, though it may be leaving.

        Raises:
            Refused: it does not (``no-replica-ready``); or none is named ("").
        """
        if not replica_id:
            raise self.refusal(model)
        replica = self._fleet.get(replica_id)
        if replica is None or replica.state in _SILENT:
            state = "gone" if replica is None else replica.state.value
            raise Refused(
                "no-replica-ready",
                f"replica {replica_id}, which alone keeps the response, is {state}; try again shortly",
                retry_after_s=_NOT_READY_RETRY_S,
            )

    def blame(self, replica_id: str, error: UpstreamError, now_s: float) -> None:
        """A replica failed a request. Being full is no fault of its health."""
        replica = self._fleet.get(replica_id)
        if replica is not None:
            self.conduct.failed(replica, error, now_s)

    def observed(self, replica_id: str, seen: Observation) -> None:
        """A replica's load report was read; the same one again says that nothing has moved."""
        replica = self._fleet.get(replica_id)
        if replica is not None:
            observed(replica, seen, fleet=self._fleet, conduct=self.conduct)

    def reported(
        self,
        replica: Replica,
        record: RequestRecord,
        held: Held,
        marks: tuple[Mark, ...],
        back: Return | None,
    ) -> None:
        """A replica's answer told how much of a prompt it had: see ``answered``."""
        self._beliefs.reported(record)
        if held.knows(replica.replica_id):
            return  # its pages were told: its next ones will be, too
        if answered(replica, record, held, marks, index=self._index, back=back):
            self._set_capacity(replica)

    def fed(self, replica_id: str, told: Feeding, now_s: float) -> None:
        """One cache of a replica that publishes its pages is followed from now on, or no more."""
        if self._fleet.get(replica_id) is not None:
            self._beliefs.fed(replica_id, told, now_s)

    def paged(self, replica_id: str, rank: int, changes: Sequence[Change], now_s: float) -> bool:
        """A replica published what changed in one of its caches; False if that was not taken.

        Nobody follows that cache, or it told more than is kept: its story is to begin anew.
        """
        return self._beliefs.paged(replica_id, rank, changes, now_s)

    def tied(self, turn: Turn, tokens: int, page_tokens: int, pages: array[int]) -> bool:
        """A placed turn's prompt has so many tokens, in these pages; False if that is of no use."""
        return self._beliefs.tied(turn, tokens, page_tokens, pages)

    def expire(self, now_s: float) -> list[str]:
        """Remove the replicas whose lease or drain is over; answer their ids. Old load reports are dropped."""
        # The ratio that turns tokens into the index's bytes is learned as requests end.
        ratio = self._ratio.mean_bytes_per_token
        if abs(ratio - self._index.bytes_per_token) > _RATIO_STEP * ratio:
            self._index.bytes_per_token = ratio
            for replica in self._fleet.replicas():
                self._set_capacity(replica)
        self.conduct.tick(now_s)
        self._forget_idle(now_s)
        self._fleet.forget_reports(now_s, kept_s=_OBSERVATION_S_MAX)
        ended = self._fleet.ended(now_s)
        for replica_id in ended:
            self.leave(replica_id)
        return ended

    def _forget_idle(self, now_s: float) -> None:
        """What a replica keeps for a while only is no longer believed to be there after that."""
        index = self._index
        if not index.ages.mark(now_s, index.n_uses):
            return
        for replica in self._fleet.replicas():
            lifetime_s = replica.keeping.lifetime_s
            if lifetime_s is not None and (used := index.ages.until(now_s - lifetime_s)):
                index.lost(replica.replica_id, used)

    def _set_start_rate(self, replica: Replica, told: PrefillRate | None) -> None:
        """What a replica's profile says of its speed counts until its counters say more."""
        if told is None:
            return
        replica.is_rate_told = True
        if told != replica.learner.start:
            replica.learner = PrefillLearner(told)
            self._fleet.set_rate(replica, told)

    def _set_capacity(self, replica: Replica) -> None:
        """What is stated, as far as it has shown itself; the index has a little more, in the bytes it counts in."""
        keeping, stated_tokens = replica.keeping, replica.stated_tokens
        self._fleet.resize(replica, int(stated_tokens * keeping.shown_factor))
        capacity_bytes = int(stated_tokens * keeping.factor * self._index.bytes_per_token)
        replica.holdings = self._index.set_capacity(replica.replica_id, capacity_bytes)

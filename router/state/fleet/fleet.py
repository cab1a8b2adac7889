"""The live fleet view: every replica with its beliefs, and who may take a request.

Nothing is copied for a decision: a policy reads the replicas themselves, and the sums it needs are
kept as requests and pins come and go.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from router.policy.ring import Rings
from router.state.fleet.by_model import ByModel, Offers, eligible, may_serve
from router.state.fleet.candidates import Eligible, View
from router.state.fleet.replica import Replica
from router.state.fleet.turns import has_turn
from router.state.health.table import KEEPING, TAKING, Event, State, follow
from router.state.wishes import Wishes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from router.state.fleet.candidates import Candidate
    from router.state.fleet.ledger import Ledger
    from router.state.fleet.replica import ReplicaSpec
    from router.state.rates.prefill import PrefillRate
    from router.state.sessions.pins import Pins


class Fleet:
    """All replicas the router knows, by id: ``get`` answers that of an id, None if it is not known.

    ``full`` are those that turned a request away lately.
    """

    def __init__(self, ledger: Ledger, pins: Pins, *, inflight_max: int | None = None) -> None:
        self._ledger = ledger
        self._pins = pins
        self._inflight_max = inflight_max
        self._replicas: dict[str, Replica] = {}
        self.get: Callable[[str], Replica | None] = self._replicas.get
        self._eligible: Eligible | None = None
        self._everyone: View | None = None
        self._plain: View | None = None  # the same, where every request sees it
        self._by_model: ByModel | None = None
        self._offers = Offers()
        self.n_changes = 0
        self._rings = Rings()
        self.wishes = Wishes()
        self._lease_due_s = inf
        self._leaving: dict[str, Replica] = {}
        self._reported_s_min = -inf  # no load report is older
        self._has_limits = inflight_max is not None
        self._ramping: set[str] = set()
        self.full: dict[str, Replica] = {}

    def __len__(self) -> int:
        return len(self._replicas)

    def replicas(self) -> list[Replica]:
        """All of them, in order of id."""
        return [self._replicas[key] for key in sorted(self._replicas)]

    def join(self, spec: ReplicaSpec, now_s: float) -> Replica:
        """Add a replica, or renew what is known of one that registers again."""
        replica = self._replicas.get(spec.replica_id)
        if replica is None:
            replica = Replica(
                spec, self._ledger.expect(spec.replica_id), self._pins.expect(spec.replica_id)
            )
            self._replicas[spec.replica_id] = replica
            self._rings = Rings(sorted(self._replicas))
            self._offers.change(None, ())
        else:
            has_moved = (spec.host, spec.port) != (replica.spec.host, replica.spec.port)
            if has_moved or replica.state is State.DRAINING:
                replica.state = State.STARTING
                self.full.pop(replica.replica_id, None)
                self.plan_leave(replica, leaves=False, until_s=None)
            if has_moved:
                self.describe(replica)
                replica.observed = replica.report = None
                self.set_foreign(replica, 0, 0.0)
            replica.spec = spec
        if spec.capacity_tokens:
            replica.stated_tokens = spec.capacity_tokens
        replica.profile = spec.profile or replica.profile
        self.renew(replica, now_s)
        self.follow_wish(replica)
        return replica

    def follow_wish(self, replica: Replica) -> None:
        """Give a replica the weight and the limit that it has by its operator, its spec or the router."""
        wish = self.wishes.of(replica.replica_id)
        replica.inflight_max = wish.inflight_max or replica.spec.inflight_max or self._inflight_max
        self._has_limits = self._has_limits or replica.inflight_max is not None
        if replica.weight != wish.weight:
            replica.weight = wish.weight
            replica.reprice()
        self._changed()

    def leave(self, replica_id: str) -> Replica | None:
        """Forget a replica."""
        replica = self._replicas.pop(replica_id, None)
        self._leaving.pop(replica_id, None)
        self._ramping.discard(replica_id)
        self.full.pop(replica_id, None)
        if replica is not None:
            self._offers.change(replica.serves, None)
        self._rings = Rings(sorted(self._replicas))
        self._ledger.forget(replica_id)
        self._pins.forget(replica_id)
        self._changed()
        return replica

    def follow(self, replica: Replica, event: Event) -> State:
        """Let an event change a replica's state; answer the state before it."""
        before = replica.state
        after = follow(before, event)
        if after is not before:
            replica.state = after
            if after is State.FULL:
                self.full[replica.replica_id] = replica
            elif before is State.FULL:
                del self.full[replica.replica_id]
            self._changed()
        return before

    def renew(self, replica: Replica, now_s: float) -> None:
        """A replica's lease starts anew, if it has one."""
        lease_s = replica.spec.lease_s
        replica.lease_until_s = None if lease_s is None else now_s + lease_s
        if replica.lease_until_s is not None:
            self._lease_due_s = min(self._lease_due_s, replica.lease_until_s)

    def plan_leave(self, replica: Replica, leaves: bool, until_s: float | None) -> None:  # noqa: FBT001
        """Whether a replica that drains leaves when it is empty, and when at the latest."""
        replica.leaves_drained, replica.drain_until_s = leaves, until_s
        if leaves or until_s is not None:
            self._leaving[replica.replica_id] = replica
        else:
            self._leaving.pop(replica.replica_id, None)

    def ended(self, now_s: float) -> list[str]:
        """The replicas whose lease ran out or whose drain is over, by id."""
        drained = [
            r.replica_id
            for r in self._leaving.values()
            if (r.leaves_drained and not r.load.inflight)
            or (r.drain_until_s is not None and r.drain_until_s <= now_s)
        ]
        return sorted({*drained, *self._leases_ended(now_s)})

    def _leases_ended(self, now_s: float) -> list[str]:
        """The replicas whose lease ran out, by id; looks at none before the first may have."""
        if now_s <= self._lease_due_s:
            return []
        leases = [
            (r.replica_id, r.lease_until_s) for r in self.replicas() if r.lease_until_s is not None
        ]
        ended = [replica_id for replica_id, until_s in leases if until_s < now_s]
        self._lease_due_s = min([until_s for _, until_s in leases if until_s >= now_s], default=inf)
        return ended

    def forget_reports(self, now_s: float, *, kept_s: float) -> None:
        """Load reports older than ``kept_s`` say nothing any more; looks at none before one may be."""
        before_s = now_s - kept_s
        if self._reported_s_min >= before_s:
            return
        oldest_s = now_s  # who has told nothing yet will do so from now on
        for replica in self._replicas.values():
            report = replica.report
            if report is None:
                continue
            if report.seen_s < before_s:
                replica.report = None
                self.set_foreign(replica, 0, 0.0)
            elif report.seen_s < oldest_s:
                oldest_s = report.seen_s
        self._reported_s_min = oldest_s

    def set_rate(self, replica: Replica, rate: PrefillRate) -> None:
        """How fast a replica computes, from now on; what is in its backlog already stays as it was."""
        replica.rate = rate
        replica.reprice()
        self._changed()

    def resize(self, replica: Replica, capacity_tokens: int) -> None:
        """So many tokens a replica is believed to hold from now on."""
        replica.capacity_tokens = capacity_tokens
        self._pins.changed[replica.replica_id] = None

    def allow(self, replica: Replica, allowance: int | None) -> None:
        """How many requests in flight a replica may have while it comes back; None for as many as ever."""
        before, replica.allowance = replica.allowance, allowance
        if (before is None) != (allowance is None):
            (self._ramping.discard if allowance is None else self._ramping.add)(replica.replica_id)
            self._changed()

    @property
    def has_takers(self) -> bool:
        """Some replica takes requests of any session."""
        return any(replica.state in TAKING for replica in self._replicas.values())

    def set_foreign(self, replica: Replica, inflight: int, backlog_s: float) -> None:
        """What a replica carries that is neither ours nor of a router that told of it."""
        replica.others_inflight, replica.others_backlog_s = inflight, backlog_s
        inflight += replica.peers.inflight
        backlog_s += replica.peers.backlog_us / 1e6
        if inflight != replica.foreign_inflight or backlog_s != replica.foreign_backlog_s:
            replica.foreign_inflight, replica.foreign_backlog_s = inflight, backlog_s
            replica.foreign_backlog_us = round(backlog_s * 1e6)
            self._ledger.changed[replica.replica_id] = None

    def describe(
        self, replica: Replica, models: tuple[str, ...] = (), adapters: tuple[str, ...] = ()
    ) -> None:
        """A replica said what it serves; nothing means that it may serve anything."""
        replica.models, before = models, replica.serves
        serves = (*models, *adapters)
        if serves != before:
            replica.serves = serves
            self._offers.change(before, serves)
            self._changed()

    def view(
        self, tried: Collection[str] = (), *, home_id: str | None = None, model: str = ""
    ) -> View:
        """Who may take a request for ``model`` now ("" for any); it is empty if nobody may.

        A suspect or full home takes the requests of its own sessions. Where all replicas serve the same,
        the model is not looked at.
        """
        if self._plain is not None and not tried:
            return self._plain
        is_mixed = self._offers.is_mixed
        ready = self._ready(model)
        home = None if home_id is None else self._replicas.get(home_id)
        guest = None
        if home is not None and home.state in KEEPING and home_id not in ready.by_id:
            guest = home if not is_mixed or may_serve(home, model) else None
        has_limits, has_ramps = self._has_limits, bool(self._ramping)
        if tried or has_limits or has_ramps or is_mixed or guest is not None:
            view = View(ready, tried=tried, has_limits=has_limits, has_ramps=has_ramps, guest=guest)
            if has_ramps and view.is_empty:  # rather too many at once than nobody at all
                return View(ready, tried=tried, has_limits=has_limits, guest=guest)
            return view
        if self._everyone is None:
            self._everyone = View(ready)
            if all(replica.state not in KEEPING for replica in self._replicas.values()):
                self._plain = self._everyone
        return self._everyone

    def has_turn(self, replica_id: str) -> bool:
        """A long prompt may be sent there now, as far as turns go."""
        return has_turn(self._replicas.get(replica_id))

    def eligible(self, model: str = "") -> Sequence[Candidate]:
        """Who might take a request for this model, were it not for limits."""
        return self._ready(model).replicas

    def _ready(self, model: str = "") -> Eligible:
        if self._offers.is_mixed:
            if self._by_model is None:
                self._by_model = ByModel(
                    self.replicas(),
                    self._rings,
                    loads_changed=self._ledger.changed,
                    homes_changed=self._pins.changed,
                )
            return self._by_model.of(model)
        if self._eligible is None:
            self._eligible = Eligible(
                eligible(self.replicas()),
                self._rings,
                loads_changed=self._ledger.changed,
                homes_changed=self._pins.changed,
            )
        return self._eligible

    def _changed(self) -> None:
        self.n_changes += 1
        self._eligible = self._everyone = self._plain = self._by_model = None

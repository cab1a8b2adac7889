"""Who may take a request: the replicas that are ready, in the orders that policies ask for."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from router.policy.ring import Rings, spot_of
from router.policy.view import ReplicaView
from router.state.fleet.least import LeastFirst, Total

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from router.policy.ring import Ring
    from router.state.rates.prefill import PrefillRate

_BACKLOG: Final = attrgetter("backlog_us")
_INFLIGHT: Final = attrgetter("inflight")
_LIVE: Final = attrgetter("weighed_tokens")
_LIVE_TOKENS: Final = attrgetter("live_tokens")
_CAPACITY: Final = attrgetter("capacity_tokens")


class Candidate(ReplicaView, Protocol):
    """What is read of a replica here besides what policies read."""

    @property
    def backlog_us(self) -> int:
        """Its backlog in whole microseconds."""

    @property
    def prefill_ahead_s(self) -> float:
        """Its backlog as it truly is, whatever its weight."""

    @property
    def weighed_tokens(self) -> int:
        """Its live working set, divided by its weight."""

    @property
    def priced(self) -> PrefillRate:
        """How fast policies take it to compute; another one makes it another candidate."""

    @property
    def is_full(self) -> bool:
        """At its limit of requests in flight."""

    @property
    def is_at_allowance(self) -> bool:
        """It has as many as it may have while it comes back."""


class Eligible:
    """The replicas that may take requests, were it not for limits; made anew when they change.

    ``loads_changed`` and ``homes_changed`` name the replicas whose load, or whose live sessions or room for them,
    changed since they were last read here, which empties them.
    """

    __slots__ = (
        "_backlogs",
        "_capacity",
        "_homes_changed",
        "_inflights",
        "_live",
        "_lives",
        "_loads_changed",
        "_rates",
        "by_id",
        "replicas",
        "rings",
    )

    def __init__(
        self,
        replicas: Sequence[Candidate],
        rings: Rings,
        *,
        loads_changed: dict[str, None],
        homes_changed: dict[str, None],
    ) -> None:
        self.replicas = replicas
        self.rings = rings
        self.by_id = {replica.replica_id: replica for replica in replicas}
        loads_changed.clear()
        homes_changed.clear()
        self._loads_changed = loads_changed
        self._homes_changed = homes_changed
        self._rates = list({replica.priced: None for replica in replicas})
        self._backlogs = LeastFirst(self.by_id, _BACKLOG)
        self._inflights = LeastFirst(self.by_id, _INFLIGHT)
        self._lives = LeastFirst(self.by_id, _LIVE)
        self._live = Total(self.by_id, _LIVE_TOKENS)
        self._capacity = Total(self.by_id, _CAPACITY)

    @classmethod
    def of(cls, replicas: Sequence[Candidate]) -> Eligible:
        """These replicas, of no fleet."""
        rings = Rings([replica.replica_id for replica in replicas])
        return cls(replicas, rings, loads_changed={}, homes_changed={})

    def least_prefill_s(self, new_tokens: int, cached_tokens: int) -> float:
        """By the fastest of them."""
        rates = self._rates
        if len(rates) == 1:
            return rates[0].prefill_s(new_tokens, cached_tokens)
        return min([rate.prefill_s(new_tokens, cached_tokens) for rate in rates], default=0.0)

    def backlogs(self) -> LeastFirst[Candidate]:
        """By seconds of prefill ahead."""
        if self._loads_changed:
            self._read_loads()
        return self._backlogs

    def inflights(self) -> LeastFirst[Candidate]:
        """By requests in flight."""
        if self._loads_changed:
            self._read_loads()
        return self._inflights

    def lives(self) -> LeastFirst[Candidate]:
        """By the live working set for its weight."""
        if self._homes_changed:
            self._read_homes()
        return self._lives

    def fill_ratio(self) -> float:
        """All live working sets over all capacities, 0 without anybody."""
        if self._homes_changed:
            self._read_homes()
        return self._live.now / (self._capacity.now or 1)

    def _read_homes(self) -> None:
        changed = self._homes_changed
        self._lives.changed(changed)
        self._live.changed(changed)
        self._capacity.changed(changed)
        changed.clear()

    def _read_loads(self) -> None:
        changed = self._loads_changed
        self._backlogs.changed(changed)
        self._inflights.changed(changed)
        changed.clear()


class View:
    """The candidates of one decision; a policy reads it as a ``FleetView``.

    ``tried`` replicas are none; nor are, with ``has_limits``, those at their limit, and with ``has_ramps``
    those that have as many as they may have while they come back. ``guest`` is one more that is not eligible
    for others: a suspect home, or a full one. ``is_empty``: nobody may take the request.
    """

    __slots__ = (
        "_candidates",
        "_eligible",
        "_guest",
        "_has_limits",
        "_has_ramps",
        "_is_open",
        "_tried",
        "is_empty",
    )

    def __init__(
        self,
        eligible: Eligible,
        *,
        tried: Collection[str] = (),
        has_limits: bool = False,
        has_ramps: bool = False,
        guest: Candidate | None = None,
    ) -> None:
        self._eligible = eligible
        self._tried = tried
        self._has_limits = has_limits
        self._has_ramps = has_ramps
        self._guest = None if guest is not None and self._is_refused(guest) else guest
        self._is_open = not (tried or has_limits or has_ramps)
        self._candidates: Sequence[Candidate] | None = None
        if self._is_open and guest is None:
            self._candidates = eligible.replicas
        self.is_empty = self._guest is None and all(map(self._is_refused, eligible.replicas))

    @classmethod
    def of(cls, replicas: Sequence[Candidate]) -> View:
        """A view of just these replicas."""
        return cls(Eligible.of(replicas))

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All of them, by id."""
        if self._candidates is None:
            found = [r for r in self._eligible.replicas if not self._is_refused(r)]
            if self._guest is not None:
                found = sorted([*found, self._guest], key=_id_of)
            self._candidates = found
        return self._candidates

    @property
    def n_ready(self) -> int:
        """Replicas that are ready, limits aside."""
        return len(self._eligible.replicas)

    @property
    def inflight_sum(self) -> int:
        """Requests in flight of all that are ready."""
        return self._eligible.inflights().total

    @property
    def inflight_most(self) -> int:
        """The most requests that any of those has in flight."""
        return self._eligible.inflights().most

    @property
    def fill_ratio(self) -> float:
        """The live working sets of all that are ready over what they can hold."""
        return self._eligible.fill_ratio()

    @property
    def least_backlog_s(self) -> float:
        """No candidate's backlog is less than that."""
        least_s = self._eligible.backlogs().fewest / 1e6
        return least_s if self._guest is None else min(least_s, self._guest.backlog_s)

    def candidate(self, replica_id: str) -> Candidate | None:
        """The candidate of this id, None if it cannot take the request now."""
        found = self._eligible.by_id.get(replica_id)
        if found is None:
            guest = self._guest
            return guest if guest is not None and guest.replica_id == replica_id else None
        return found if self._is_open or not self._is_refused(found) else None

    def least_backlogged(self, k: int, key: str) -> list[Candidate]:
        """At most ``k``, the least backlog first."""
        return self._least(self._eligible.backlogs(), k, key)

    def least_inflight(self, k: int, key: str) -> list[Candidate]:
        """At most ``k``, the fewest requests in flight first."""
        return self._least(self._eligible.inflights(), k, key)

    def least_lived_in(self, k: int, key: str) -> list[Candidate]:
        """At most ``k``, the smallest live working set for its weight first."""
        return self._least(self._eligible.lives(), k, key)

    def least_prefill_s(self, new_tokens: int, cached_tokens: int) -> float:
        """The least seconds that any who is ready, or the guest, needs for such a prefill."""
        least_s = self._eligible.least_prefill_s(new_tokens, cached_tokens)
        if self._guest is None:
            return least_s
        return min(least_s, self._guest.prefill_s(new_tokens, cached_tokens))

    def ring(self, points: int) -> Ring:
        """All known replicas on a ring, whether they are candidates or not."""
        return self._eligible.rings.get(points)

    def _least(self, order: LeastFirst[Candidate], k: int, key: str) -> list[Candidate]:
        found = order.first(k, spot_of(key), None if self._is_open else self._is_refused)
        if self._guest is not None:
            found = sorted([*found, self._guest], key=order.value_of)[:k]
        return found

    def _is_refused(self, replica: Candidate) -> bool:
        return (
            replica.replica_id in self._tried
            or (self._has_limits and replica.is_full)
            or (self._has_ramps and replica.is_at_allowance)
        )


def _id_of(replica: Candidate) -> str:
    return replica.replica_id

"""The constants of ``home``, and its rules in words: why a candidate was not chosen.

The comparisons are those of ``router.policy.home``; what is said of a candidate names the one that kept it
from being chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from router.policy.words import by, in_tokens, seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from router.policy.view import FleetView, Price, Ranking, RouteRequest

_NOT_PRICED = "not priced by the rule in a fleet of this size: not among the best in any part"


@dataclass(slots=True, frozen=True)
class HomeParameters:
    """Constants of the policy, with their reasons.

    ``thick_inflight``: requests of one session in flight at its home from which on it is split; a
    replica serves about five at once, so one session may fill it but not queue behind itself.
    ``move_margin_s``: what a move must save at least: waits are known as of a moment ago only.
    ``recompute_per_inflight``: for each request that the fleet's replicas have in flight on average, what a move computes
    again counts so many times more (:class:`Terms`). In an idle fleet seconds of prefill cost nobody but the session
    itself; in a busy one all others pay for them too. Beyond half of the fleet's KV filled with live sessions, copies left behind
    push live ones out: it counts the more, by what is live over what is left (up to ``fill_ratio_max``).
    ``move_age_s_min``: a session that has just moved stays. ``branch_margin_s``: what a branch
    of the session that is cached elsewhere must save; ``branch_share_min``: how much of the prompt must be cached
    there. Less is a head that sessions share, and where home has lost its cache, going there is a move.
    ``session_s_per_token``: what each live token costs a new neighbour over its life, 5 s for a session of 100k:
    thirty turns, a fifth of which meet one of that session's; and the fuller a pool, the sooner who pauses has
    lost its cache.
    ``full_ratio``: from that much live tokens over what the caches hold on the fleet is full. Requests then wait for others to leave
    rather than for prefill: for a new session each request in flight counts ``full_inflight_s``, and a move must save
    ``full_margin_s``, for nowhere is it spared what it flees from.
    ``neighbour_s_per_token``: what one running neighbour adds to an output token: 2.5 ms a verify
    step of 5.84 tokens. ``room_ratio``: the share of a replica's capacity that live sessions may
    fill before pressure is charged.
    ``weigh_all_max``: up to so many ready replicas each is priced; in a larger fleet the ``weighed`` best by
    backlog, by requests in flight, of the holders and, for a new session, twice as many by live working set: what is
    best by price is among the best in one of its parts.
    """

    thick_inflight: int = 4
    move_margin_s: float = 3.0
    recompute_per_inflight: float = 2.0
    fill_ratio_max: float = 0.95
    move_age_s_min: float = 30.0
    branch_margin_s: float = 0.25
    branch_tokens_min: int = 2_048
    branch_share_min: float = 0.5
    session_s_per_token: float = 5e-5
    full_ratio: float = 1.0
    full_inflight_s: float = 4.0
    full_margin_s: float = 60.0
    neighbour_s_per_token: float = 0.000_43
    room_ratio: float = 0.9
    weigh_all_max: int = 16
    weighed: int = 4

    def is_full(self, fleet: FleetView) -> bool:
        """More lives in the fleet than its caches hold."""
        return fleet.fill_ratio > self.full_ratio

    def terms(self, at_home: Price, fleet: FleetView) -> Terms:
        """On which a home of this price may be left now."""
        inflight = fleet.inflight_sum / max(1, fleet.n_ready)
        fill_ratio = min(fleet.fill_ratio, self.fill_ratio_max)
        crowding = max(1.0, fill_ratio / (1.0 - fill_ratio))
        return Terms(
            at_home,
            self.full_margin_s if self.is_full(fleet) else self.move_margin_s,
            self.recompute_per_inflight * inflight * crowding,
        )


@dataclass(slots=True, frozen=True)
class Terms:
    """When a home may be left: ``there + recompute_factor * (prefill there - prefill at home) + margin_s < home``.

    What a move adds to compute is in the price of ``there`` once; the factor is what it costs everybody else.
    """

    at_home: Price
    margin_s: float
    recompute_factor: float

    @property
    def most_s(self) -> float:
        """What costs more than that, the toll included, is no place to move to."""
        return self.at_home.total_s - self.margin_s

    def toll_s(self, prefill_s: float) -> float:
        """What a move to where the prompt's prefill takes so long costs beside its price."""
        added_s = prefill_s - self.at_home.prefill_s
        return self.recompute_factor * added_s if added_s > 0.0 else 0.0

    def is_clear(self, there: Price) -> bool:
        """Whether home may be left for what costs ``there``."""
        return there.total_s + self.toll_s(there.prefill_s) < self.most_s

    @property
    def words(self) -> str:
        """What a move must save."""
        if not self.recompute_factor:
            return f"({seconds(self.margin_s)})"
        times = f"{self.recompute_factor:.2g} times what it computes again"
        return f"({seconds(self.margin_s)} and {times})"


class Case(StrEnum):
    """By which rule a request was placed; the last three have the ranking's reason as their value."""

    PLACED = "placed"
    AGREED = "agreed"
    CHEAPEST = "cheapest"
    APART = "apart"
    STAYED = "home"
    BRANCH = "branch"
    MOVED = "move"


@dataclass(slots=True, frozen=True)
class Reasons:
    """Why each candidate of one decision is not the chosen one.

    ``terms`` are those on which home may be left, None without one. ``prices`` are those of all candidates, ``weighed`` the ids that the rule prices, ``branch_id`` the one that holds
    clearly more of the prompt than home does, where the session stayed all the same.
    """

    parameters: HomeParameters
    request: RouteRequest
    ranking: Ranking
    case: Case
    terms: Terms | None
    prices: Mapping[str, Price]
    weighed: Collection[str]
    branch_id: str | None = None

    @property
    def rule(self) -> str:
        """The rule that decided, in one phrase."""
        p, n, what = self.parameters, self.request.session_inflight, self._who_has_no_home
        terms = "" if self.terms is None else self.terms.words
        if self.case is Case.CHEAPEST:
            what = f"{n} of the session's requests are in flight at home: this one goes where it costs least"
        if self.request.is_auxiliary:
            what = "an auxiliary request goes where it costs least, and binds nothing"
        return {
            Case.PLACED: what,
            Case.AGREED: "other routers cannot be heard: homes go by the session's key, not by price",
            Case.CHEAPEST: what,
            Case.APART: "other routers cannot be heard: who has a home stays",
            Case.STAYED: f"a session stays at home, unless a move saves enough {terms}",
            Case.BRANCH: (
                "another holds more of this branch of the session, which saves over"
                f" {seconds(p.branch_margin_s)}"
            ),
            Case.MOVED: f"it saves what a move must save {terms}",
        }[self.case]

    @property
    def _who_has_no_home(self) -> str:
        if self.request.home_id is None:
            return "a new session goes where its price is least"
        return "its home cannot take it: as a new session, it goes where its price is least"

    def why_not(self, replica_id: str) -> str:
        """One phrase; "" for the chosen one."""
        if replica_id == self.ranking.ranked[0]:
            return ""
        match self.case:
            case Case.AGREED:
                return "the session's key ranks it lower"
            case Case.APART:
                return "home is kept: other routers cannot be heard"
            case Case.STAYED:
                return self._not_left_for(replica_id)
            case Case.BRANCH if replica_id != self.request.home_id:
                return self._not_this_branch(replica_id)
            case _:
                return self._dearer(replica_id)

    def _dearer(self, replica_id: str) -> str:
        """Where the least price counts."""
        if replica_id not in self.weighed:
            return _NOT_PRICED
        first = self.ranking.ranked[0]
        if _ms(self._counted_s(replica_id)) <= _ms(self._counted_s(first)):
            return "as dear to the millisecond; the session's key ranks it lower"
        if _ms(self._total_s(replica_id)) > _ms(self._total_s(first)):
            return f"dearer by {self._apart(replica_id)}"
        more_s = self.prices[replica_id].prefill_s - self.prices[first].prefill_s
        return f"computes {seconds(more_s)} more again, which others would pay for too"

    def _not_this_branch(self, replica_id: str) -> str:
        cached = self.request.cached_tokens
        fewer = cached.get(self.ranking.ranked[0]) - cached.get(replica_id)
        if fewer > 0:
            return f"holds {in_tokens(fewer)} less of this branch"
        return "holds as much of this branch; the session's key ranks it lower"

    def _not_left_for(self, replica_id: str) -> str:
        """Why home was not left for it."""
        p, terms = self.parameters, self.terms
        assert terms is not None, "who stays has a home"
        home_s, there_s = self._total_s(self.ranking.ranked[0]), self._total_s(replica_id)
        if _ms(there_s) >= _ms(home_s):
            what = f"dearer by {self._apart(replica_id)}"
            return what if _ms(there_s) > _ms(home_s) else "as dear as home, to the millisecond"
        saved = f"cheaper by {self._apart(replica_id)}"
        if replica_id == self.branch_id:
            return f"{saved}, less than what a branch must save ({seconds(p.branch_margin_s)})"
        if not terms.is_clear(self.prices[replica_id]):
            return f"{saved}, less than what a move must save {terms.words}"
        if self.request.home_age_s < p.move_age_s_min:
            age = seconds(self.request.home_age_s)
            return (
                f"{saved}, but home is kept: moved {age} ago, less than {seconds(p.move_age_s_min)}"
            )
        if replica_id not in self.weighed:
            return f"{saved}, but {_NOT_PRICED}"
        return f"{saved}, to the millisecond what a move must save {terms.words}"

    def _counted_s(self, replica_id: str) -> float:
        """What is compared: its price, and the toll of a move to it."""
        price = self.prices[replica_id]
        if self.case is not Case.MOVED or self.terms is None or replica_id == self.request.home_id:
            return price.total_s
        return price.total_s + self.terms.toll_s(price.prefill_s)

    def _total_s(self, replica_id: str) -> float:
        return self.prices[replica_id].total_s

    def _apart(self, replica_id: str) -> str:
        return by(abs(self._total_s(replica_id) - self._total_s(self.ranking.ranked[0])))


def _ms(price_s: float) -> int:
    """Prices are compared to the millisecond."""
    return round(price_s * 1e3)

"""What policies say of their decisions, in the words that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.policy.view import Explanation, Weighed

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.policy.view import FleetView, Ranking, ReplicaView

    Tell = Callable[[ReplicaView], tuple[str, str]]
    """What the rule compares of a candidate, and why that one was not chosen."""


def seconds(length_s: float) -> str:
    """A length of time in few figures: 4 ms, 0.25 s, 12.3 s, 1,200 s."""
    if length_s < 0.0995:  # noqa: PLR2004
        return f"{length_s * 1e3:.0f} ms"
    if length_s >= 100:  # noqa: PLR2004
        return f"{length_s:,.0f} s"
    digits = 2 if length_s < 1 else 1
    return f"{length_s:.{digits}f}".rstrip("0").rstrip(".") + " s"


def by(difference_s: float) -> str:
    """A difference of two prices, which is one of milliseconds at the least."""
    return seconds(max(difference_s, 0.001))


def in_tokens(count: float) -> str:
    """950 tokens, 61.0k tokens, 7.25M tokens."""
    if count < 1_000:  # noqa: PLR2004
        return f"{count:.0f} tokens"
    return f"{count / 1e3:.1f}k tokens" if count < 1e6 else f"{count / 1e6:.2f}M tokens"  # noqa: PLR2004


def told(ranking: Ranking, fleet: FleetView, rule: str, tell: Tell) -> Explanation:
    """Of a policy that prices nothing: every candidate, by what ``tell`` says of it."""
    rows = []
    for replica in fleet.candidates:
        compared, why_not = tell(replica)
        is_chosen = replica.replica_id == ranking.ranked[0]
        rows.append(Weighed(replica.replica_id, compared, "" if is_chosen else why_not))
    return Explanation(ranking, rule, tuple(rows))


def by_inflight(ranking: Ranking, fleet: FleetView, rule: str) -> Explanation:
    """Of a decision for the fewest requests in flight."""
    chosen = fleet.candidate(ranking.ranked[0])
    assert chosen is not None, "a policy chooses a candidate"
    return told(ranking, fleet, rule, lambda r: (inflight(r), more_inflight(r, chosen)))


def inflight(replica: ReplicaView) -> str:
    """Its requests in flight."""
    return f"{replica.inflight} in flight"


def more_inflight(replica: ReplicaView, chosen: ReplicaView) -> str:
    """Why one with at least as many in flight was not chosen."""
    more = replica.inflight - chosen.inflight
    return (
        f"{more} more in flight"
        if more > 0
        else "as few in flight; the session's key ranks it lower"
    )


def scored(
    ranking: Ranking, fleet: FleetView, rule: str, scores: dict[str, float], what: str
) -> Explanation:
    """Of a decision for the least of ``scores``; ``what`` is the score's name."""
    least = scores[ranking.ranked[0]]

    def tell(replica: ReplicaView) -> tuple[str, str]:
        score = scores[replica.replica_id]
        if score == least:
            why = f"the same {what}; the session's key ranks it lower"
        else:
            why = f"{what} higher by {_figure(score - least)}"
        return f"{what} {_figure(score)}", why

    return told(ranking, fleet, rule, tell)


def _figure(number: float) -> str:
    """Of a score: whole from a thousand on, else three figures."""
    return f"{number:,.0f}" if abs(number) >= 1_000 else f"{number:.3g}"  # noqa: PLR2004

"""The smallest number of sessions that brings the reference's throughput within 2 % of the most it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WITHIN: Final = 0.02
_GROWTH: Final = 1.5
_TRIED_MAX: Final = 40


class Saturation(NamedTuple):
    """The sessions, over all replicas, and the throughput of every number that was tried, in order."""

    lanes: int
    tried: tuple[tuple[int, float], ...]


def saturation(
    throughputs: Callable[[Sequence[int]], Sequence[float]], *, start: int, step: int, ways: int = 2
) -> Saturation:
    """Search from ``start`` sessions on until more bring nothing, then go back, to within ``step``.

    ``throughputs`` answers for several numbers at once, at most ``ways`` or two, so that they can be run side by side; 0
    where so many sessions are not served soundly. Throughput is taken to rise up to the answer, and to be past it where half
    as many sessions more bring no 2 %.

    Raises:
        ValueError: it still rises at the largest number that is tried.
    """
    assert start >= 1, start
    assert step >= 1, step
    tried: dict[int, float] = {}

    def run(lanes: Sequence[int]) -> None:
        new = [n for n in dict.fromkeys(lanes) if n not in tried]
        tried.update(zip(new, throughputs(new), strict=True))

    last = start
    batch = [start]
    while True:
        while len(batch) < max(2, ways):
            last = max(last + step, round(last * _GROWTH))
            batch.append(last)
        run(batch)
        if tried[last] <= (1.0 + WITHIN) * max(tried[n] for n in tried if n < last):
            break
        if len(tried) > _TRIED_MAX:
            raise ValueError(f"throughput still rises at {last:,} sessions")
        batch = []
    while (gap := _edge(tried, step) or _bracket(tried))[1] - gap[0] > step:
        low, high = gap
        parts = min(ways + 1, -(-(high - low) // step))
        run([low + (high - low) * part // parts for part in range(1, parts)])
    return Saturation(_bracket(tried)[1], tuple(sorted(tried.items())))


def _edge(tried: dict[int, float], step: int) -> tuple[int, int] | None:
    """The most sessions that are served soundly, and the next more that are not, where that is over ``step`` more."""
    sound = [n for n, throughput in tried.items() if throughput > 0.0]
    last = max(sound, default=0)
    beyond = min((n for n in tried if n > last), default=last)
    return (last, beyond) if beyond - last > step else None


def _bracket(tried: dict[int, float]) -> tuple[int, int]:
    """The smallest number that is within, and the next smaller one that was tried (0: none)."""
    least = (1.0 - WITHIN) * max(tried.values())
    high = min(n for n, throughput in tried.items() if throughput >= least)
    return max((n for n in tried if n < high), default=0), high

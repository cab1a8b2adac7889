"""What caches would have held: one without limit, one for each session alone, and LRU pools.

A pool is exact LRU over tokens that gives up the end of the oldest prompt first. All sizes are
measured in one pass, by the distance of each use from the last use of the same tokens (Mattson and
others, "Evaluation techniques for storage hierarchies", 1970): how many other tokens were used in
between. Only named tokens take room; answers and what is new in every prompt do not.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sim.workload.figures.order import roots

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.workload.traces.model import RecordedWorkload

_POOLS: Final = 12
_PROGRESS_TURNS: Final = 100_000


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """Tokens found, by turn number and by pool size.

    ``own_tokens``: what the turn's own session, with its sub-agents, had sent before;
    ``any_tokens``: what any session had. ``pool_hits``: tokens found in a pool of each size.
    """

    own_tokens: Sequence[int]
    any_tokens: Sequence[int]
    pool_tokens: Sequence[int]
    pool_hits: Sequence[int]


def cache_figures(
    workload: RecordedWorkload,
    order: Sequence[int],
    pool_tokens: Sequence[int] = (),
    on_turns: Callable[[int], None] | None = None,
) -> CacheFigures:
    """Replay the named parts of all prompts in ``order``.

    Sizes that are not given are halvings of what it takes to hold everything.
    """
    sizes = tuple(pool_tokens) or _halvings(workload)
    pools = _Pools(workload, len(order), sizes)
    families = roots(workload)
    family_of = array("I", bytes(4 * len(order)))
    for session, family in zip(workload.sessions, families, strict=True):
        for turn in range(session.first, session.end):
            family_of[turn] = family
    own_tokens, any_tokens = array("Q", bytes(8 * len(order))), array("Q", bytes(8 * len(order)))
    seen: dict[int, dict[int, int]] = {}
    for n, turn in enumerate(order):
        own_tokens[turn] = _known(workload, turn, seen.setdefault(family_of[turn], {}))
        any_tokens[turn] = pools.use(turn)
        if on_turns is not None and n % _PROGRESS_TURNS == _PROGRESS_TURNS - 1:
            on_turns(n + 1)
    return CacheFigures(own_tokens, any_tokens, sizes, tuple(pools.hits))


def _known(workload: RecordedWorkload, turn: int, seen: dict[int, int]) -> int:
    """How deep the prompt is known, and know all of it from here on."""
    known = 0
    for run in workload.tree.runs(workload.turns.branch[turn], workload.turns.named_tokens[turn]):
        before = seen.get(run.branch, run.start)
        if before > run.start and not known:
            known = min(before, run.end)
        if before >= run.end:
            break  # what lies above was known with it
        seen[run.branch] = run.end
    return known


class _Pools:
    """LRU pools of several sizes over one sequence of prompts."""

    def __init__(self, workload: RecordedWorkload, n_turns: int, sizes: Sequence[int]) -> None:
        self._workload = workload
        self._sizes = sizes
        self.hits = [0] * len(sizes)
        self._used: dict[int, list[tuple[int, int]]] = {}
        """By branch: (depth, when last used down to there), the newest and least deep at the end."""
        self._recent = _Sums(n_turns)
        self._now = 0

    def use(self, turn: int) -> int:
        """Use the prompt of a turn; answers how many of its tokens were ever used before."""
        columns = self._workload.turns
        found: dict[int, int] = {}
        for run in self._workload.tree.runs(columns.branch[turn], columns.named_tokens[turn]):
            self._use_run(run.branch, run.start, run.end, found)
        for when, tokens in found.items():
            newer = self._recent.behind(when)
            for i, size in enumerate(self._sizes):
                if size > newer:
                    self.hits[i] += min(tokens, size - newer)
        for when, tokens in found.items():
            self._recent.add(when, -tokens)
        self._recent.add(self._now, columns.named_tokens[turn])
        self._now += 1
        return sum(found.values())

    def _use_run(self, branch: int, start: int, end: int, found: dict[int, int]) -> None:
        used = self._used.setdefault(branch, [])
        at = start
        while used and at < end:
            depth, when = used[-1]
            found[when] = found.get(when, 0) + min(depth, end) - at
            at = min(depth, end)
            if depth > end:
                break
            used.pop()
        used.append((end, self._now))


class _Sums:
    """Sums over the ends of a list of numbers that change (a Fenwick tree)."""

    def __init__(self, n: int) -> None:
        self._nodes = [0] * (n + 1)
        self._total = 0

    def add(self, index: int, value: int) -> None:
        """Add to the number at ``index``."""
        self._total += value
        index += 1
        while index < len(self._nodes):
            self._nodes[index] += value
            index += index & -index

    def behind(self, index: int) -> int:
        """The sum of all numbers behind ``index``."""
        total = self._total
        index += 1
        while index:
            total -= self._nodes[index]
            index &= index - 1
        return total


def _halvings(workload: RecordedWorkload) -> tuple[int, ...]:
    tree = workload.tree
    whole = sum(end - fork for end, fork in zip(tree.end_tokens, tree.fork_tokens, strict=True))
    sizes = (_rounded(whole / 2**i) for i in reversed(range(_POOLS)))
    return tuple(sorted({size for size in sizes if size}))


def _rounded(tokens: float) -> int:
    """Up to two digits that are not 0, so that it is easily read and holds no less."""
    digit: int = 10 ** max(0, len(str(int(tokens))) - 2)
    return -int(-tokens // digit) * digit

"""From a turn's place in the tree of a recorded workload to its prompt, as both sides of the wire see it.

A session's newest prompt stays in memory as arrays that only grow where the session appends, and
that of its pages is every such prompt's: a turn costs its new part, and a copy of the router's view
of the rest, which is an eighth as long.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from sim.workload.play.content import BYTES_PER_TOKEN, SEGMENT_TOKENS
from sim.workload.play.turns import PlayedPrompt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.workload.play.content import Content
    from sim.workload.play.turns import Run

Depths = tuple[tuple[int, int], ...]
"""How deep branches are reached; a branch in a scope is a uid."""

_LOW_BITS: Final = 16
_LOW_IDS: Final = 1 << _LOW_BITS
_BYTES: Final = array("H", range(_LOW_IDS)).tobytes()
_LOW_BYTES: Final = (_BYTES[::2], _BYTES[1::2])
_LOW_PLACES: Final = (0, 1) if sys.byteorder == "little" else (6, 7)
"""The bytes of the low 16 bits of all numbers, and where they stand among a number's eight."""
_FEW: Final = 64
_FEW_CUTS: Final = 32
"""More are put behind a chain all at once."""
_ONES: Final = [
    int.from_bytes(array("Q", [1] * n).tobytes(), sys.byteorder) for n in range(_FEW + 1)
]
_STEPS: Final = [
    int.from_bytes(array("Q", range(n)).tobytes(), sys.byteorder) for n in range(_FEW + 1)
]
_NO_PAGES: Final = array("Q")


class SessionPrompts:
    """The prompts of one session in one playing; asked for in the session's order.

    ``scope`` is the playing's, at least 1. ``own`` and ``common`` are how deep each branch was sent
    or answered, in whole pages, by its uid: ``own`` for the playing, ``common`` for scope 0.
    """

    __slots__ = (
        "_at",
        "_base",
        "_branch",
        "_chain",
        "_common",
        "_content",
        "_cut_at",
        "_depth",
        "_ends",
        "_head_bytes",
        "_n_heads",
        "_own",
        "_pages",
        "_path",
    )

    def __init__(
        self,
        content: Content,
        session: int,
        *,
        scope: int,
        own: dict[int, int],
        common: dict[int, int],
    ) -> None:
        self._content = content
        self._base = scope * content.width
        self._own, self._common = own, common
        self._head_bytes = content.head_tokens(session) * BYTES_PER_TOKEN
        self._path: tuple[Run, ...] = ()
        self._pages, self._chain, self._ends = array("Q"), array("Q"), array("I")
        self._branch = self._depth = self._cut_at = 0
        self._at = self._n_heads = -1

    def prompt(self, turn: int) -> tuple[PlayedPrompt, Depths]:
        """The prompt of a turn, by its number in the workload, and what its answer will add.

        From here on all of the prompt counts as sent.
        """
        content = self._content
        page = content.page_tokens
        if self._at != turn:
            self._go(turn)
        goes_on = content.goes_on[turn]
        if goes_on:
            self._go(turn + 1)
        covered, tokens = content.covered_tokens[turn], content.prompt_tokens[turn]
        n_pages, n_covered = tokens // page, covered // page
        pages, ends = self._pages, self._ends
        n_segments, covered_bytes = len(ends), covered * BYTES_PER_TOKEN
        while n_segments and ends[n_segments - 1] > covered_bytes:
            n_segments -= 1
        chain, ends = self._chain[:n_segments], ends[:n_segments]
        if covered < tokens:
            if n_covered < n_pages:
                pages = pages[:n_covered]
            self._add_tail(turn, pages, chain, ends)
        known = self._use(covered, n_covered * page)
        if goes_on and n_covered == n_pages:
            output_pages = pages[n_pages : (tokens + content.output_tokens[turn]) // page]
            answer = self._answer(covered, (n_pages + len(output_pages)) * page)
        else:
            output_pages, answer = _NO_PAGES, ()
        ceiling = known if known < tokens else tokens - 1
        if (n_heads := self._n_heads) < 0:
            n_heads = bisect_right(ends, self._head_bytes)
            if covered_bytes >= self._head_bytes:
                self._n_heads = n_heads
        prompt = PlayedPrompt(
            pages,
            output_pages,
            chain,
            ends,
            n_heads,
            ceiling - ceiling % page,
            self._path,
        )
        return prompt, answer

    def answered(self, answer: Depths) -> None:
        """A turn was answered: what its answer adds counts as known."""
        width = self._content.width
        for uid, depth in answer:
            seen = self._common if uid < width else self._own
            if seen.get(uid, 0) < depth:
                seen[uid] = depth

    def _go(self, turn: int) -> None:
        """Bring path and arrays to the named part of a turn's prompt."""
        self._at = turn
        content, depth = self._content, self._depth
        branch, named = content.branch[turn], content.named_tokens[turn]
        if branch == self._branch and named >= depth:
            if named > depth:
                if depth >= content.shared_tokens[branch]:
                    self._append(branch, self._base + branch, depth, named)
                else:
                    for run in self._parts(branch, depth, named):
                        self._append(branch, *run)
        else:
            self._turn_to(branch, named)
        self._branch, self._depth = branch, named

    def _turn_to(self, branch: int, named: int) -> None:
        """Bring path and arrays to another branch."""
        content = self._content
        runs = list(content.workload.tree.runs(branch, named))
        runs.reverse()
        path = [part for run in runs for part in self._parts(run.branch, run.start, run.end)]
        common = common_tokens(self._path, path)
        if common < self._depth:
            self._cut(common)
        for uid, start, end in path:
            if end > common:
                number, begin = uid % content.width, max(start, common)
                self._cut_at = bisect_right(content.cuts[number], begin)
                self._append(number, uid, begin, end)
        self._cut_at = bisect_right(content.cuts[branch], named)

    def _parts(self, branch: int, start: int, end: int) -> list[Run]:
        """A run in scope 0 as far as it is shared, and in the playing's own behind that."""
        shared = self._content.shared_tokens[branch]
        if start >= shared:
            return [(self._base + branch, start, end)]
        if end <= shared:
            return [(branch, start, end)]
        return [(branch, start, shared), (self._base + branch, shared, end)]

    def _append(self, branch: int, uid: int, start: int, end: int) -> None:
        """Go on with a run from where the arrays end; ``_cut_at`` is the next cut on its branch."""
        content, path = self._content, self._path
        if path and path[-1][0] == uid:
            self._path = (*path[:-1], (uid, path[-1][1], end))
        else:
            self._path = (*path, (uid, start, end))
        page, first_page = content.page_tokens, uid * content.span_pages
        append_numbers(self._pages, first_page + start // page, first_page + end // page)
        cuts, at = content.cuts[branch], self._cut_at
        n_cuts = len(cuts)
        if at < n_cuts and cuts[at] <= end:
            chain, ends, first_token = self._chain, self._ends, uid * content.span_tokens
            if at + _FEW_CUTS < n_cuts and cuts[at + _FEW_CUTS] <= end:
                n = bisect_right(cuts, end, at + _FEW_CUTS)
                depths, at = cuts[at:n].tolist(), n
                chain.fromlist([first_token + depth for depth in depths])
                ends.fromlist([depth * BYTES_PER_TOKEN for depth in depths])
            while at < n_cuts and (depth := cuts[at]) <= end:
                chain.append(first_token + depth)
                ends.append(depth * BYTES_PER_TOKEN)
                at += 1
            self._cut_at = at

    def _cut(self, tokens: int) -> None:
        """Go back to the first ``tokens``, with new arrays: prompts of before keep the old ones."""
        path = self._path
        n = len(path)
        while n and path[n - 1][1] >= tokens:
            n -= 1
        path = path[:n]
        if path and path[-1][2] > tokens:
            path = (*path[:-1], (*path[-1][:2], tokens))
        self._path = path
        if tokens * BYTES_PER_TOKEN < self._head_bytes:
            self._n_heads = -1
        n_segments = bisect_right(self._ends, tokens * BYTES_PER_TOKEN)
        self._pages = self._pages[: tokens // self._content.page_tokens]
        self._chain, self._ends = self._chain[:n_segments], self._ends[:n_segments]

    def _add_tail(self, turn: int, pages: array[int], chain: array[int], ends: array[int]) -> None:
        """Behind what has a place comes what nobody sends twice."""
        content = self._content
        tokens = content.prompt_tokens[turn]
        uid = self._base + content.n_branches + turn
        first_page = uid * content.span_pages
        if (n_pages := tokens // content.page_tokens) > len(pages):
            append_numbers(pages, first_page + len(pages), first_page + n_pages)
        first_token = uid * content.span_tokens
        last = ends[-1] // BYTES_PER_TOKEN if ends else 0
        depths = (*range(last + SEGMENT_TOKENS, tokens, SEGMENT_TOKENS), tokens)
        chain.extend([first_token + depth for depth in depths])
        ends.extend([depth * BYTES_PER_TOKEN for depth in depths])

    def _use(self, tokens: int, whole: int) -> int:
        """How much of the first ``tokens`` of the path was seen; now ``whole`` of them are."""
        width = self._content.width
        for uid, start, end in reversed(self._path):
            if start >= tokens:
                continue
            seen = self._common if uid < width else self._own
            before = seen.get(uid, 0)
            depth = end
            if whole < end:
                depth = whole
            if before < depth and start < depth:
                seen[uid] = depth
            if before > start:  # what lies above was seen with it
                return min(before, end, tokens)
        return 0

    def _answer(self, sent: int, tokens: int) -> Depths:
        """What lies behind ``sent`` in the first ``tokens`` of the path."""
        found: Depths = ()
        for uid, start, end in reversed(self._path):
            if end <= sent:
                break
            if tokens >= end:
                found = (*found, (uid, end))
            elif tokens > start:
                found = (*found, (uid, tokens))
        return found


def common_tokens(one: Sequence[Run], other: Sequence[Run]) -> int:
    """How far two paths run together."""
    common = 0
    for (uid, _, end), (other_uid, _, other_end) in zip(one, other, strict=False):
        if uid != other_uid:
            break
        common = min(end, other_end)
        if end != other_end:
            break
    return common


def append_numbers(ids: array[int], first: int, end: int) -> None:
    """Append the numbers from ``first`` up to ``end``.

    As ``ids.extend(range(first, end))``, at a fraction of the time: a few as one long integer with 64
    bits for each; many as bytes, for numbers in a row differ in their low 16 bits, which are copied
    from a table.
    """
    n = end - first
    if n <= _FEW:
        ids.frombytes((first * _ONES[n] + _STEPS[n]).to_bytes(8 * n, sys.byteorder))
        return
    (one, other), (place, other_place) = _LOW_BYTES, _LOW_PLACES
    while first < end:
        low = first % _LOW_IDS
        high = min(low + end - first, _LOW_IDS)
        numbers = bytearray(first.to_bytes(8, sys.byteorder) * (high - low))
        numbers[place::8] = one[low:high]
        numbers[other_place::8] = other[low:high]
        ids.frombytes(numbers)
        first += high - low

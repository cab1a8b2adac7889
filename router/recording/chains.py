"""A chain told by what is new in it: most of a turn's prompt was told by the turn before.

The writer and the reader each keep the newest chains, by the same rule and within the same bound, so
that what one refers to the other still has. Links that are sealed and those that are not agree in
the same places, so one rule serves both.
"""

from __future__ import annotations

import sys
from array import array
from collections import OrderedDict
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from router.recording.errors import RecordingError
from router.recording.records import SEALED_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

LINKS_MAX: Final = 2_000_000
"""Links of all remembered chains: 24 MB, some thirteen thousand sessions of a hundred segments."""

ENTRY_LINKS: Final = 50
"""A remembered chain counts this much more than its links: what the objects around it take."""

_BRANCHES_MAX: Final = 4
"""Chains remembered of one session: its main line and what branched off (sub-agents, titles)."""


@dataclass(slots=True)
class _Known:
    """The chain of one earlier arrival."""

    number: int
    session: bytes
    chain: array[int]
    ends_bytes: array[int]


class Shared(NamedTuple):
    """What a chain has in common with an earlier one: ``back`` arrivals ago, ``common`` segments."""

    back: int
    common: int
    start_bytes: int


class ChainMemory:
    """The newest chains by session, and by first segment for a session that is new."""

    def __init__(self, links_max: int = LINKS_MAX) -> None:
        self._links_max = links_max
        self._n_links = 0
        self._number = 0
        self._known: OrderedDict[int, _Known] = OrderedDict()
        self._sessions: dict[bytes, list[int]] = {}
        self._openings: dict[int, int] = {}

    def shorten(self, session: bytes, chain: array[int], ends_bytes: array[int]) -> Shared:
        """Count one arrival, remember its chain, and answer what of it was told before."""
        self._number += 1
        if not chain:
            return Shared(0, 0, 0)
        base, common = self._nearest(session, chain, ends_bytes)
        number = self._number
        self._remember(base, common, _Known(number, session, chain, ends_bytes))
        if base is None or not common:
            return Shared(0, 0, 0)
        return Shared(number - base.number, common, ends_bytes[common - 1])

    def restore(
        self, session: bytes, shared: tuple[int, int], links: bytes, lengths_bytes: Sequence[int]
    ) -> tuple[array[int], array[int]]:
        """Count one arrival, and answer its whole chain and the ends of its segments.

        ``shared`` are ``back`` and ``common`` as ``shorten`` gave them.

        Raises:
            RecordingError: it refers to a chain that is not known, or the parts do not fit.
        """
        self._number += 1
        back, common = shared
        base = self._known.get(self._number - back) if back else None
        if common > (0 if base is None else len(base.chain)) or (back and not common):
            raise RecordingError(
                f"arrival {self._number} continues {common} segments of the arrival {back} before "
                "it, which has no such chain"
            )
        if len(links) != SEALED_BYTES * len(lengths_bytes):
            raise RecordingError(f"arrival {self._number} has links and lengths that do not fit")
        chain = base.chain[:common] if base is not None else array("Q")
        ends = base.ends_bytes[:common] if base is not None else array("I")
        new = array("Q", links)
        if sys.byteorder == "big":
            new.byteswap()
        chain.extend(new)
        try:
            ends.extend(array("I", list(accumulate(lengths_bytes, initial=_last(ends)))[1:]))
        except OverflowError:
            raise RecordingError(f"arrival {self._number} has a prompt of over 4 GiB") from None
        if chain:
            self._remember(base, common, _Known(self._number, session, chain, ends))
        return chain, ends

    def clear(self) -> None:
        """Forget every chain."""
        self._known.clear()
        self._sessions.clear()
        self._openings.clear()
        self._n_links = 0

    def _nearest(
        self, session: bytes, chain: array[int], ends_bytes: array[int]
    ) -> tuple[_Known | None, int]:
        """The known chain that has most in common with this one, and how many segments that is."""
        numbers = self._sessions.get(session, ())
        best, most = None, 0
        for number in reversed(numbers):
            known = self._known[number]
            common = _common(known.chain, chain)
            if common > most:
                best, most = known, common
            if most == len(known.chain):
                break
        opening = self._openings.get(chain[0]) if best is None else None
        if opening is not None:
            best = self._known[opening]
            most = _common(best.chain, chain)
        if best is not None and best.ends_bytes[:most] != ends_bytes[:most]:
            return None, 0
        return best, most

    def _remember(self, base: _Known | None, common: int, known: _Known) -> None:
        """Keep a chain; the one that it goes on from is not needed any more."""
        if base is not None and base.session == known.session and common == len(base.chain):
            self._forget(base)
        self._known[known.number] = known
        self._n_links += len(known.chain) + ENTRY_LINKS
        self._openings[known.chain[0]] = known.number
        numbers = self._sessions.setdefault(known.session, [])
        numbers.append(known.number)
        if len(numbers) > _BRANCHES_MAX:
            self._forget(self._known[numbers[0]])
        while self._n_links > self._links_max:
            self._forget(next(iter(self._known.values())))

    def _forget(self, known: _Known) -> None:
        del self._known[known.number]
        self._n_links -= len(known.chain) + ENTRY_LINKS
        numbers = self._sessions[known.session]
        numbers.remove(known.number)
        if not numbers:
            del self._sessions[known.session]
        if self._openings.get(known.chain[0]) == known.number:
            del self._openings[known.chain[0]]


def lengths_of(ends_bytes: array[int], shared: Shared) -> tuple[int, ...]:
    """The bytes of each segment that is new."""
    new = ends_bytes[shared.common :].tolist()
    return tuple(
        [end - before for before, end in zip([shared.start_bytes, *new], new, strict=False)]
    )


def _last(ends_bytes: array[int]) -> int:
    return ends_bytes[-1] if ends_bytes else 0


def _common(one: array[int], other: array[int]) -> int:
    """How many leading links are equal."""
    n = min(len(one), len(other))
    if one[:n] == other[:n]:
        return n
    low, high = 0, n - 1
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low

"""What the index would have of a prompt once some replicas were believed to hold more of it, or less."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from router.state.cache.prefix_index import Match

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


class Overlaid(Match):
    """A match of which some replicas' leading segments are others; the index itself stays as it is."""

    __slots__ = ("_changed", "_under")

    def __init__(self, under: Match, changed: Mapping[str, int]) -> None:
        super().__init__(under.node, under.n)
        self._under = under
        self._changed = changed

    @override
    def segments(self, replica_id: str) -> int:
        """How many leading segments a replica holds."""
        changed = self._changed.get(replica_id)
        return self._under.segments(replica_id) if changed is None else changed

    @property
    @override
    def most(self) -> int:
        """The most leading segments that any replica holds."""
        return max(self.everyone().values(), default=0)

    @override
    def levels(self) -> Iterator[tuple[int, Collection[str]]]:
        """The deepest first, with all that hold as much."""
        found = self.everyone()
        for segments in sorted(set(found.values()), reverse=True):
            yield segments, [name for name, held in found.items() if held >= segments]

    @override
    def everyone(self) -> dict[str, int]:
        """The segments of all replicas that hold any."""
        found = self._under.everyone() | dict(self._changed)
        return {replica_id: segments for replica_id, segments in found.items() if segments}

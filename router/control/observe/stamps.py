"""One order of load reports from two sources, whose own marks cannot be compared.

A feed counts its readings, a load report has a time of another host's clock. That a feed has fallen silent
and a report is read in its place is no sign that anything moved: the first such report is told with the
mark that was told last, and so is each one after it that is the same, rank by rank.
"""

from __future__ import annotations

from router.control.observe.asking import Kind


class Stamps:
    """Follows the marks of one replica's load reports."""

    def __init__(self) -> None:
        self.is_same = False
        """The last report was told with the mark of the one before it."""
        self._kind: Kind | None = None
        self._told: tuple[float, ...] = ()
        self._first: tuple[float, ...] = ()
        self._stand_in: tuple[float, ...] = ()

    def told(self, kind: Kind, stamp: tuple[float, ...]) -> tuple[float, ...]:
        """The mark to tell a report with that has ``stamp`` in its own source, () for none."""
        before = self._told
        if kind is not self._kind:
            self._kind = kind
            # A reading of the feed has just been made: it is news whatever was told before.
            is_stand_in = bool(before) and kind is not Kind.FEED
            self._first, self._stand_in = (stamp, before) if is_stand_in else ((), ())
        if self._first and len(stamp) == len(self._first) == len(self._stand_in):
            pairs = zip(stamp, self._first, self._stand_in, strict=True)
            stamp = tuple([then if mark == first else mark for mark, first, then in pairs])
        self._told = stamp
        self.is_same = bool(stamp) and stamp == before
        return stamp

"""One cache's events in their order, whatever way they come: the rules, without sockets.

Events are numbered from 0 by each engine process. They are subscribed to first and replayed then, from
the beginning or from where the story broke off; a gap is replayed. Where a replay does not reach back
to the gap, the story begins anew, in part. A number that goes back, or a number known to be another
event's, is another process: its story begins anew.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from router.state.cache.feeds import Said

if TYPE_CHECKING:
    from router.control.events.frames import Frame
    from router.state.cache.pages import Change

_WAITING_MAX: Final = 512
"""Steps that came while earlier ones are replayed; those beyond are replayed, too."""


class What(StrEnum):
    """What happens to a story, for the metrics."""

    STEP = "step"
    MALFORMED = "malformed"
    GAP = "gap"
    RESYNC = "resync"
    RESTART = "restart"
    BREAK = "break"


class Teller(Protocol):
    """Takes a story on."""

    def changed(self, changes: list[Change]) -> None:
        """The next changes, in order."""

    def said(self, said: Said) -> None:
        """Where the story stands, in order with the changes."""

    def counted(self, what: What) -> None:
        """Something happened to it."""

    def ask(self, start: int) -> None:
        """Ask for a replay from this number on; an answer to an earlier question is of no use any more."""


class Story:
    """What one publisher has told so far. ``is_asking``: a replay is awaited."""

    def __init__(self, teller: Teller, *, has_replay: bool) -> None:
        self._teller = teller
        self._has_replay = has_replay
        self._next = 0
        self._at_s = -inf
        self._is_whole = False
        self._is_following = False
        self._is_checking = False
        self._is_first = False
        self._asked = 0
        self._waiting: deque[tuple[int, Frame]] = deque()
        self._is_holed = False
        self.is_asking = False

    # The connection

    def connected(self) -> None:
        """The publisher is there, perhaps again, and perhaps another process."""
        if self._is_following and self._next:
            self.check()
        else:
            self.begin()

    def begin(self) -> None:
        """Let the story begin anew, from the first event that can be had."""
        self._is_following, self._is_whole, self._is_checking = False, True, False
        self._next, self._at_s = 0, -inf
        self._waiting.clear()
        self._teller.said(Said.BEGUN)
        if self._has_replay:
            self._ask(0)

    def check(self) -> None:
        """See that it is still the same process, and that nothing is missing."""
        if self.is_asking or not self._has_replay:
            return
        if not self._next or not self._is_following:
            self._ask(self._next)
            return
        self._is_checking = True
        self._ask(self._next - 1)

    def broke(self) -> None:
        """The publisher is not there any more, or does not answer."""
        self.is_asking = False
        self._waiting.clear()
        self._teller.counted(What.BREAK)
        self._teller.said(Said.LOST)
        if not self._has_replay:
            self._is_following = False

    # What comes

    def live(self, number: int, frame: Frame) -> None:
        """A step was published."""
        if self.is_asking:
            self._waiting.append((number, frame))
            if len(self._waiting) > _WAITING_MAX:
                self._waiting.popleft()
                self._is_holed = True
        elif not self._is_following:
            self._follow_from(number, frame)
        elif number == self._next:
            self._take(number, frame)
        elif number > self._next:
            self._gap(number, frame)
        elif frame.at_s > self._at_s:
            self._restarted(number, frame)

    def replayed(self, number: int, frame: Frame) -> None:
        """A step was published earlier, and is told again as it was asked for."""
        if not self.is_asking:
            return
        is_first, self._is_first = self._is_first, False
        if is_first and self._is_checking:
            self._is_checking = False
            if number != self._asked or frame.at_s != self._at_s:
                self._teller.counted(What.RESTART)
                self.begin()
            return
        if is_first and number > self._next:
            self._begin_in_part(number)
        if number == self._next:
            self._take(number, frame)
        elif number > self._next:
            self._is_holed = True  # a publisher drops what a slow reader does not take

    def replay_ended(self) -> None:
        """All that can be told again was told."""
        if not self.is_asking:
            return
        self.is_asking = False
        if self._is_checking:  # it has nothing of what it told before
            self._is_checking = False
            self._teller.counted(What.RESTART)
            self.begin()
            return
        has_come, is_holed = self._next > self._asked, self._is_holed
        self._is_holed = False
        if is_holed and has_come:
            self._ask(self._next)
            return
        waiting, self._waiting = self._waiting, deque()
        if waiting and waiting[0][0] > self._next and not has_come:
            self._begin_in_part(waiting[0][0])
        self._stand()
        while waiting and not self.is_asking:
            self.live(*waiting.popleft())
        self._waiting.extend(waiting)

    def skipped(self, number: int) -> None:
        """A step could not be read: it is left out, and the story is no longer whole."""
        self._teller.counted(What.MALFORMED)
        if self.is_asking and self._is_checking and number == self._asked:
            self._is_checking = self._is_first = False
            return
        if number != self._next or not (self._is_following or self.is_asking):
            return
        self._next = number + 1
        self._is_whole = False
        self._is_first = False
        if not self.is_asking:
            self._stand()

    # Within

    def _ask(self, start: int) -> None:
        self.is_asking = self._is_first = True
        self._asked = start
        self._teller.ask(start)

    def _stand(self) -> None:
        self._is_following = True
        self._teller.said(Said.WHOLE if self._is_whole else Said.PARTIAL)

    def _take(self, number: int, frame: Frame) -> None:
        self._next, self._at_s = number + 1, frame.at_s
        self._teller.counted(What.STEP)
        if frame.changes:
            self._teller.changed(frame.changes)
        if frame.n_skipped and self._is_whole:
            self._is_whole = False
            if self._is_following:
                self._stand()

    def _follow_from(self, number: int, frame: Frame) -> None:
        """Without replays a story begins with what comes."""
        if self._has_replay:
            return  # a question that was not answered is asked again
        if number:
            self._begin_in_part(number)
        self._take(number, frame)
        self._stand()

    def _gap(self, number: int, frame: Frame) -> None:
        self._teller.counted(What.GAP)
        if self._has_replay:
            self._waiting.append((number, frame))
            self._ask(self._next)
            return
        self._begin_in_part(number)
        self._take(number, frame)
        self._stand()

    def _begin_in_part(self, number: int) -> None:
        """What came before ``number`` cannot be had any more."""
        if self._next:
            self._teller.counted(What.RESYNC)
            self._teller.said(Said.BEGUN)
        self._is_whole = False
        self._next = number

    def _restarted(self, number: int, frame: Frame) -> None:
        self._teller.counted(What.RESTART)
        self.begin()
        if self._has_replay:
            self._waiting.append((number, frame))
        else:
            self._follow_from(number, frame)

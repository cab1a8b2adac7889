"""Caches that are followed over real sockets: order, gaps, replays, restarts, and what is no event."""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from router.clock import now_s
from router.control.events.follower import Follower
from router.control.events.frames import EVENTS_MAX
from router.state.cache.feeds import Feed, Feeding, Feeds, Said
from tests.doubles.publisher import CLEARED, Publisher, removed, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from router.control.events.line import Item, Key
    from router.control.events.story import What

WAIT_S_MAX = 20.0
SOCKETS_OF_TWO = 9
"""Of a follower with two lines and one open question."""
KEY = ("r1", 0)


class Reader:
    """Takes what a follower delivers into a core's feeds; waits for what a test expects."""

    def __init__(self, sockets_max: int = 1_000) -> None:
        self.feeds = Feeds()
        self.counts: Counter[str] = Counter()
        self.said: list[Said] = []
        self.is_taking = True
        self.largest = self.most_pages = 0
        self.bad_name = ""
        self._n: Counter[Key] = Counter()
        self._changed = threading.Condition()
        self.ahead_s = 0.0
        self.follower = Follower(
            self._deliver, self._count, lambda: now_s() + self.ahead_s, sockets_max=sockets_max
        )
        self.follower.start()

    def _deliver(self, key: Key, items: list[Item]) -> None:
        with self._changed:
            self._n[key] += 1
            changes = [item for item in items if not isinstance(item, Said)]
            if changes and key[0] == self.bad_name:
                self.bad_name = ""
                raise KeyError(key)
            pages = sum(len(change.pages) for item in changes for change in item)
            self.most_pages = max(self.most_pages, pages)
            for item in items:
                if isinstance(item, Said):
                    self.said.append(item)
                    self.feeds.fed(key[0], Feeding(item, 4), 0.0)
                else:
                    self.largest = max(self.largest, len(item))
                    self.feeds.paged(key[0], key[1], item, 0.0)
            if self.is_taking:
                self.follower.taken(key, self._n[key])
            self._changed.notify_all()

    def _count(self, key: Key, what: What) -> None:
        with self._changed:
            self.counts[f"{key[0]} {what.value}"] += 1
            self._changed.notify_all()

    def until(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, WAIT_S_MAX), (self.said, self.counts)

    def holds(self, *pages: int, name: str = "r1") -> bool:
        """The replica is believed to hold exactly these."""
        feed = self.feeds.live(name)
        return feed is not None and sorted(self.pages(feed)) == sorted(pages)

    @staticmethod
    def pages(feed: Feed) -> list[int]:
        return list(feed.caches[0]._next)


@pytest.fixture
def reader() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    reader.follower.stop()
    assert not reader.follower.is_alive


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    publisher = Publisher()
    yield publisher
    publisher.stop()


def followed(reader: Reader, publisher: Publisher, *pages: int) -> None:
    """Follow a publisher until it is believed to hold these."""
    reader.follower.follow(KEY, publisher.endpoint())
    reader.until(lambda: reader.holds(*pages))
    assert publisher.subscribed.wait(WAIT_S_MAX)


def test_what_was_published_before_is_replayed_and_what_comes_is_followed(
    reader: Reader, publisher: Publisher
) -> None:
    publisher.publish(CLEARED)
    publisher.publish(stored([1, 2, 3]))
    publisher.publish(stored([4], parent=3), removed([4]))
    followed(reader, publisher, 1, 2, 3)
    publisher.publish(stored([4, 5], parent=3))
    publisher.publish(removed([5]))
    publisher.publish(stored([6], parent=4))
    reader.until(lambda: reader.holds(1, 2, 3, 4, 6))
    feed = reader.feeds.live("r1")
    assert feed is not None
    assert feed.is_whole
    assert feed.caches[0].leading(array("q", [1, 2, 3, 4, 5]), 5) == 4
    publisher.publish(CLEARED)
    reader.until(reader.holds)
    assert reader.counts["r1 gap"] == reader.counts["r1 restart"] == 0


def test_a_publisher_without_a_past_is_whole(reader: Reader, publisher: Publisher) -> None:
    followed(reader, publisher)
    assert reader.said[-1] is Said.WHOLE
    publisher.publish(stored([1]))
    reader.until(lambda: reader.holds(1))


def test_a_gap_is_replayed(reader: Reader, publisher: Publisher) -> None:
    publisher.publish(stored([1]))
    followed(reader, publisher, 1)
    publisher.publish(stored([2], parent=1), is_sent=False)
    publisher.publish(stored([3], parent=2), is_sent=False)
    publisher.publish(stored([4], parent=3))
    reader.until(lambda: reader.holds(1, 2, 3, 4))
    assert publisher.asked[-1] == 1
    assert reader.counts["r1 gap"] == 1
    assert reader.counts["r1 resync"] == 0
    assert Said.PARTIAL not in reader.said


@pytest.mark.parametrize("is_forgotten_by_size", [True, False])
def test_a_gap_that_cannot_be_filled_begins_anew_in_part(
    reader: Reader,
    *,
    is_forgotten_by_size: bool,
) -> None:
    publisher = Publisher(kept_max=2 if is_forgotten_by_size else 100)
    try:
        publisher.publish(stored([1]))
        followed(reader, publisher, 1)
        for page in (2, 3, 4, 5):
            publisher.publish(
                stored([page], parent=page - 1), is_sent=False, is_kept=is_forgotten_by_size
            )
        publisher.publish(stored([6], parent=5))
        expected = (5, 6) if is_forgotten_by_size else (6,)
        reader.until(lambda: reader.holds(*expected))
        assert reader.said[-1] is Said.PARTIAL
        assert reader.counts["r1 resync"] == 1
        publisher.publish(stored([7], parent=6))
        reader.until(lambda: reader.holds(*expected, 7))
    finally:
        publisher.stop()


def test_another_process_behind_the_address_is_followed_from_its_beginning(reader: Reader) -> None:
    first = Publisher()
    for page in (1, 2, 3):
        first.publish(stored([page]))
    followed(reader, first, 1, 2, 3)
    first.stop()
    reader.until(lambda: reader.feeds.live("r1") is None)
    second = Publisher(ports=first.ports)
    try:
        for page in (7, 8, 9, 10):
            second.publish(stored([page]))
        reader.until(lambda: reader.holds(7, 8, 9, 10))
        assert reader.counts["r1 restart"] == 1
        assert reader.said[-1] is Said.WHOLE
    finally:
        second.stop()


def test_who_publishes_elsewhere_while_words_of_before_are_unread_is_followed_there(
    reader: Reader, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    publisher.publish(stored([1]))
    followed(reader, publisher, 1)
    second = Publisher()
    try:
        second.publish(stored([7]))
        with reader._changed:  # the thread waits with what it has read; the rest is there after
            for page in range(2, 300):
                publisher.publish(stored([page], parent=page - 1))
            reader.follower.follow(KEY, second.endpoint())
        reader.until(lambda: reader.holds(7))
    finally:
        second.stop()
    assert not [r for r in caplog.records if "failed" in r.getMessage()]


def test_a_number_that_goes_back_is_another_process(reader: Reader, publisher: Publisher) -> None:
    for page in (1, 2, 3):
        publisher.publish(stored([page]))
    followed(reader, publisher, 1, 2, 3)
    with publisher._lock:
        publisher._next = 0
        publisher._kept.clear()
    publisher.publish(CLEARED)
    publisher.publish(stored([9]))
    reader.until(lambda: reader.holds(9))
    assert reader.counts["r1 restart"] == 1


def test_what_is_no_event_is_counted_and_left_out(reader: Reader, publisher: Publisher) -> None:
    publisher.publish(stored([1]))
    followed(reader, publisher, 1)
    for frames in ([b""], [b"", b"", b""], [b"short", b"x"], [b"\xff" * 8, b"x"]):
        publisher.send_frames(*frames)
    publisher.publish_raw(b"\xc1 no msgpack")
    publisher.publish_raw(b"\x93\x00\x91" * 2_000)
    publisher.publish({**stored([2]), "block_hashes": ["no number"]})
    publisher.publish({**stored([2]), "block_hashes": [1 << 63]})
    publisher.publish({"type": "SomethingElse"})
    publisher.publish(stored([3]))
    reader.until(lambda: reader.holds(1, 3))
    assert reader.counts["r1 malformed"] == 9
    feed = reader.feeds.live("r1")
    assert feed is not None
    assert not feed.is_whole  # something was missed
    publisher.publish({**stored([4]), "block_size": 128}, stored([5], medium="EXTERNAL"))
    publisher.publish(stored([6]))
    reader.until(lambda: reader.holds(1, 3, 6))


def test_without_replays_a_story_begins_where_it_is_met(
    reader: Reader, publisher: Publisher
) -> None:
    publisher.publish(stored([1]))
    reader.follower.follow(KEY, publisher.endpoint(has_replay=False))
    assert publisher.subscribed.wait(WAIT_S_MAX)
    publisher.publish(stored([2]))
    reader.until(lambda: reader.holds(2))
    assert reader.said[-1] is Said.PARTIAL
    publisher.publish(stored([3]), is_sent=False)
    publisher.publish(stored([4]))
    reader.until(lambda: reader.holds(4))
    assert publisher.asked == []


def test_more_than_is_taken_is_not_kept_but_replayed(reader: Reader, publisher: Publisher) -> None:
    publisher.publish(stored([1]))
    followed(reader, publisher, 1)
    reader.is_taking, n_taken = False, reader._n[KEY]
    n_steps = 3_000
    for step in range(n_steps):
        publisher.publish(stored(range(10 + step * 50, 60 + step * 50)))
    reader.until(lambda: reader._n[KEY] >= 60)
    assert reader._n[KEY] <= n_taken + 64
    other = Publisher()
    try:
        # Another publisher's events are not held up.
        other.publish(stored([5]))
        reader.is_taking = True
        reader.follower.follow(("r2", 0), other.endpoint())
        reader.until(lambda: reader.holds(5, name="r2"))
        reader.follower.taken(KEY, reader._n[KEY])
        reader.until(
            lambda: (f := reader.feeds.live("r1")) is not None and len(f.caches[0]) > n_steps * 50
        )
        assert reader.feeds.live("r1").is_whole  # type: ignore[union-attr]
    finally:
        other.stop()


def test_a_publisher_that_answers_nobody_is_asked_again_and_delays_nobody(reader: Reader) -> None:
    silent, other = Publisher(is_answering=False), Publisher()
    try:
        silent.publish(stored([1]))
        other.publish(stored([2]))
        reader.follower.follow(KEY, silent.endpoint())
        reader.follower.follow(("r2", 0), other.endpoint())
        reader.until(lambda: reader.holds(2, name="r2"))
        assert silent.questioned.wait(WAIT_S_MAX)
        assert reader.feeds.live("r1") is None
        silent.is_answering = True
        reader.until(lambda: reader.holds(1))
        assert len(silent.asked) >= 2
    finally:
        silent.stop()
        other.stop()


def test_a_story_that_was_forgotten_is_told_again(reader: Reader, publisher: Publisher) -> None:
    publisher.publish(stored([1, 2]))
    followed(reader, publisher, 1, 2)
    reader.feeds.lost("r1")
    assert reader.feeds.live("r1") is None
    reader.follower.begin_anew(KEY)
    reader.until(lambda: reader.holds(1, 2))
    reader.follower.leave(KEY)
    reader.follower.leave(("nobody", 0))


def test_an_address_that_is_none_is_logged_in_one_line(
    reader: Reader, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    bad = publisher.endpoint()._replace(live="tcp://x\nforged: line:1")
    reader.follower.follow(("bad", 0), bad)
    followed(reader, publisher)  # wishes are seen to in order
    (message,) = (r.getMessage() for r in caplog.records if "events-unreachable" in r.message)
    assert "\n" not in message
    assert r"url='tcp://x\nforged: line:1'" in message


def test_a_large_step_is_handed_over_in_portions(reader: Reader, publisher: Publisher) -> None:
    followed(reader, publisher)
    pages = range(1, 20_001)
    publisher.publish(stored(pages))
    reader.until(lambda: reader.holds(*pages))
    feed = reader.feeds.live("r1")
    assert feed is not None
    assert feed.caches[0].following(1, 30_000) == 19_999
    publisher.publish(removed(pages[5_000:]), stored([30_000], parent=5_000))
    reader.until(lambda: reader.holds(*pages[:5_000], 30_000))
    assert feed.caches[0].following(1, 30_000) == 5_000
    assert reader.most_pages < 4_096


def test_a_step_of_too_many_events_is_left_out(reader: Reader, publisher: Publisher) -> None:
    followed(reader, publisher)
    publisher.publish(*[CLEARED] * (EVENTS_MAX + 1))
    publisher.publish(stored([2]))
    reader.until(lambda: reader.holds(2))
    assert reader.counts["r1 malformed"] == 1
    assert reader.said[-1] is Said.PARTIAL


def test_where_no_socket_is_left_the_others_are_followed_on(publisher: Publisher) -> None:
    reader = Reader(sockets_max=SOCKETS_OF_TWO)
    other = Publisher()
    try:
        other.is_answering = False  # its question stays open, and holds a socket
        reader.follower.follow(("r2", 0), other.endpoint())
        assert other.questioned.wait(WAIT_S_MAX)
        reader.follower.follow(KEY, publisher.endpoint())
        reader.until(lambda: reader.counts["r1 break"] > 0)
        assert reader.follower.is_alive
        other.is_answering = True
        reader.follower.leave(("r2", 0))
        publisher.publish(stored([1]))
        reader.until(lambda: reader.holds(1))
    finally:
        reader.follower.stop()
        other.stop()


def test_the_trouble_of_one_line_is_its_own_and_it_begins_anew(
    reader: Reader, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    other = Publisher()
    try:
        followed(reader, publisher)
        reader.follower.follow(("r2", 0), other.endpoint())
        reader.until(lambda: reader.holds(name="r2"))
        reader.bad_name = "r2"
        other.publish(stored([7]))
        reader.until(lambda: reader.counts["r2 break"] == 1 and reader.feeds.live("r2") is None)
        assert "events-line-failed replica=r2 rank=0" in caplog.text
        publisher.publish(stored([1]))
        reader.until(lambda: reader.holds(1))
        reader.ahead_s = 31.0
        reader.until(lambda: reader.holds(7, name="r2"))
    finally:
        other.stop()

"""Of several workers' words on one session, whose counts."""

from __future__ import annotations

from itertools import permutations

from router.control.whole.whole import last_served


def test_who_served_a_session_last_knows_it_best() -> None:
    heard = {"told_by": "worker-2", "requests": 9}
    before = {"told_by": None, "requests": 7}  # and has not heard of what came after
    last = {"told_by": None, "requests": 8}
    for views in permutations([heard, before, last]):
        assert last_served(list(views)) is last
    assert last_served([heard]) is heard

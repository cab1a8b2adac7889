"""Of several workers' words on one session, whose counts."""

from __future__ import annotations

from itertools import permutations

from router.control.whole.whole import last_served


def test_who_served_a_session_last_knows_it_best() -> None:
    heard = {"told_by": "worker-2", "requests": 9, "prompt_tokens": 900}
    before = {
        "told_by": None,
        "requests": 7,
        "prompt_tokens": 700,
    }  # and has not heard of what came after
    last = {"told_by": None, "requests": 8, "prompt_tokens": 800}
    for views in permutations([heard, before, last]):
        assert last_served(list(views)) is last
    assert last_served([heard]) is heard


def test_of_two_that_count_as_many_requests_the_longer_prompt_is_the_later_one() -> None:
    """Each had not heard of the other's turn when its own came."""
    before = {"told_by": None, "requests": 4, "prompt_tokens": 900}
    last = {"told_by": None, "requests": 4, "prompt_tokens": 950}
    for views in permutations([before, last]):
        assert last_served(list(views)) is last

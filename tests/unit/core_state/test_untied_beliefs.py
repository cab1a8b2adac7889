"""A session whose pages are not known yet is believed as the index has it, whatever others' pages tell."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from hashing.pages import page_numbers
from router.dialect.base import Usage
from router.state.cache.feeds import Said
from router.state.cache.pages import Change, Kind, Medium
from router.state.history import Outcome
from tests.doubles.paged_replica import PAGE_TOKENS
from tests.doubles.paged_sessions import N_HEAD, Talk, plain_turn, rig, talk_of, tied_turn

if TYPE_CHECKING:
    from array import array

    from router.core import RouterCore


@pytest.mark.parametrize("seed", range(20))
def test_what_one_session_ties_takes_nothing_from_others_with_its_head(seed: int) -> None:
    dice = random.Random(seed)
    core, replicas = rig()
    head = talk_of("head", dice)
    del head.segments[N_HEAD:], head.lengths[N_HEAD:]
    talks = [talk_of(f"s{n}", dice, head) for n in range(8)]
    for talk in talks:
        for _ in range(3):
            talk.grow()
        plain_turn(core, replicas, talk)
    for talk in talks[4:]:
        for _ in range(2):
            talk.grow()
            tied_turn(core, replicas, talk, 1.0)
    for talk in talks[:4]:
        before = len(talk.tokens)
        talk.grow()
        predicted, cached = plain_turn(core, replicas, talk)
        assert cached > before - PAGE_TOKENS
        assert predicted > 0.8 * cached - 2 * PAGE_TOKENS


@pytest.mark.parametrize("n_replicas", [1, 2])
def test_the_guess_of_a_head_is_not_what_a_session_holds(n_replicas: int) -> None:
    """Of one prompt alone nobody knows where its head ends: its pages may be another session's."""
    dice = random.Random(9)
    core, replicas = rig(n_replicas, policy="rendezvous")
    head = talk_of("head", dice)
    del head.segments[N_HEAD:], head.lengths[N_HEAD:]
    one, other = talk_of("one", dice, head), talk_of("two", dice, head)
    for talk in (one, other):
        talk.grow()
    other.lengths[-1] = 50  # by bytes, nearly all of its tokens seem to belong to the head
    other.tokens += [dice.getrandbits(17) for _ in range(2_000)]
    plain_turn(core, replicas, one)
    tied_turn(core, replicas, other, 1.0)
    assert len({core.pins.get(talk.key).home_id for talk in (one, other)}) == n_replicas
    for _ in range(4):
        one.grow()
        predicted, cached = plain_turn(core, replicas, one)
        assert abs(predicted - cached) <= 0.2 * cached + 2 * PAGE_TOKENS


def test_a_flush_of_the_time_before_takes_nothing_from_requests_since() -> None:
    dice = random.Random(10)
    core, replicas = rig(1)
    replica, talk = replicas["r0"], talk_of("s", dice)
    replica.said(Said.BEGUN)
    plain_turn(core, replicas, talk)
    replica.tell(Change(Kind.CLEARED))  # replayed: it was before
    replica.tell(Change(Kind.STORED, Medium.GPU, None, replica.prompts[-1]))
    replica.said(Said.WHOLE)
    talk.grow()
    predicted, cached = plain_turn(core, replicas, talk)
    assert cached
    assert predicted > 0.8 * cached
    replica.flush()
    talk.grow()
    assert plain_turn(core, replicas, talk) == (0, 0)


def _home_of(core: RouterCore, talk: Talk) -> str:
    """Where it would be placed; nothing is computed there."""
    ticket = talk.ask(core, 0.0)
    core.finish(ticket, Outcome.CLIENT_GONE, 0.0)
    return ticket.replica_id


@pytest.mark.parametrize("n_more", [0, 1], ids=["where it was counted", "between"])
@pytest.mark.parametrize("seed", range(12))
def test_a_page_that_two_sessions_share_in_part_takes_nothing_from_either(
    seed: int, n_more: int
) -> None:
    """A fork goes on elsewhere from within a page: that page is another one there, and what is before it is not."""
    dice = random.Random(seed)
    core, replicas = rig(policy="rendezvous")
    one = talk_of("one", dice)
    for _ in range(3):
        one.grow()
    fork = Talk("fork", dice, list(one.segments), list(one.lengths), list(one.tokens))
    for _ in range(n_more):
        one.grow()
    tied_turn(core, replicas, one, 0.0)
    pin = core.pins.get("one")
    assert pin is not None
    while _home_of(core, fork) == pin.home_id:
        fork.key += "s"
    one.grow()
    for _ in range(2):
        fork.grow()
    plain_turn(core, replicas, fork)
    for _ in range(3):
        tied_turn(core, replicas, one, 1.0)
        one.grow()
    fork.grow()
    predicted, cached = plain_turn(core, replicas, fork)
    assert predicted > 0.8 * cached - 2 * PAGE_TOKENS


@pytest.mark.parametrize("extra_tokens", [0, 9])
def test_a_session_that_is_being_told_of_is_not_taken_back_by_another_ones_tie(
    extra_tokens: int,
) -> None:
    """Its replica has told of a part of the head by then, and tells of the rest a moment later."""
    dice = random.Random(11)
    core, replicas = rig(policy="rendezvous")
    head = talk_of("head", dice)
    del head.segments[N_HEAD:], head.lengths[N_HEAD:]
    head.tokens += [dice.getrandbits(17) for _ in range(extra_tokens)]
    slow: tuple[Talk, array[int]] | None = None
    n_tied = 0
    for n in range(40):
        talk = talk_of(f"s{n}", dice, head)
        talk.grow()
        ticket = talk.ask(core, 1.0)
        replica = replicas[ticket.replica_id]
        is_slow = replica.replica_id == "r1"
        if is_slow and (slow is not None or n_tied < 2):
            core.finish(ticket, Outcome.CLIENT_GONE, 1.0)
            continue
        cached = replica.cached_tokens(talk.tokens)
        if is_slow:
            pages = page_numbers(talk.tokens, PAGE_TOKENS)
            replica.held.update(pages)
            replica.tell(Change(Kind.STORED, Medium.GPU, None, pages[:1]))
            slow = (talk, pages)
        else:
            pages = replica.compute(talk.tokens)
        core.began(ticket, 1.0)
        core.finish(ticket, Outcome.DONE, 1.0, usage=Usage(len(talk.tokens), 3, cached))
        if not is_slow:
            assert core.members.tied(ticket, len(talk.tokens), PAGE_TOKENS, pages)
            n_tied += 1
        if slow is not None and not is_slow:
            break
    assert slow is not None
    talk, pages = slow
    replicas["r1"].tell(Change(Kind.STORED, Medium.GPU, pages[0], pages[1:]))
    talk.grow()
    predicted, cached = plain_turn(core, replicas, talk)
    assert cached > len(head.tokens)
    assert predicted > 0.8 * cached - 2 * PAGE_TOKENS

"""Where replicas tell of their pages, what is predicted of a tied session is what is there."""

from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.dialect.base import Usage
from router.state.beliefs import Source
from router.state.cache.feeds import Feeding, Said
from router.state.cache.pages import Change, Kind, Medium
from router.state.health.table import Event
from router.state.history import Outcome
from tests.doubles.core_rig import make_core
from tests.doubles.paged_replica import PAGE_TOKENS
from tests.doubles.paged_sessions import N_HEAD, rig, talk_of, tied_turn


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_whatever_happens_to_caches_a_tied_session_is_predicted_to_the_page(seed: int) -> None:
    dice = random.Random(seed)
    core, replicas = rig()
    head = talk_of("head", dice)
    del head.segments[N_HEAD:], head.lengths[N_HEAD:]
    talks = [talk_of(f"s{n}", dice, head) for n in range(5)]
    for talk in talks:
        talk.grow()
        tied_turn(core, replicas, talk, 1.0)
    for step in range(40):
        now_s = 10.0 + step
        what, replica = dice.random(), replicas[f"r{dice.randrange(2)}"]
        if what < 0.3:
            replica.evict(dice)
        elif what < 0.35:
            replica.flush()
        elif what < 0.4:
            replica.restart()
        elif what < 0.45:
            core.members.heard(replica.replica_id, Event.CONNECT_FAILED, now_s)
            core.members.heard(replica.replica_id, Event.PROBE_OK, now_s)
            replica.restart()
        talk = dice.choice(talks)
        if dice.random() < 0.9:
            talk.grow()
        assert tied_turn(core, replicas, talk, now_s) == 0
        # Who is enumerated as a holder holds that much, and nobody holds more than is enumerated.
        ticket = talk.ask(core, now_s)
        held = ticket.held
        for tokens, ids in held.levels():
            assert all(held.get(name) <= max(tokens, held.most) for name in ids)
        for name, other in replicas.items():
            assert held.get(name) == other.cached_tokens(talk.tokens), name
            assert held.everyone().get(name, 0) == held.get(name)
        assert held.most >= max(held.get(name) for name in replicas)
        core.finish(ticket, Outcome.CLIENT_GONE, now_s)


def test_a_first_turn_finds_the_common_head_to_the_page() -> None:
    dice = random.Random(3)
    core, replicas = rig(1)
    head = talk_of("head", dice)
    del head.segments[N_HEAD:], head.lengths[N_HEAD:]
    errors = []
    for n in range(4):
        talk = talk_of(f"s{n}", dice, head)
        talk.grow()
        errors.append(tied_turn(core, replicas, talk, float(n)))
    assert errors[2:] == [0, 0]
    replicas["r0"].flush()
    talk = talk_of("last", dice, head)
    talk.grow()
    assert tied_turn(core, replicas, talk, 10.0) == 0


def test_the_pages_of_an_answer_count_as_far_as_they_are_there() -> None:
    dice = random.Random(4)
    core, replicas = rig(1)
    replica, talk = replicas["r0"], talk_of("s", dice)
    answer = [dice.getrandbits(17) for _ in range(80)]
    for n in range(3):  # answers come back as they were
        ticket = talk.ask(core, float(n))
        cached = replica.cached_tokens(talk.tokens)
        pages = replica.compute(talk.tokens)
        core.began(ticket, float(n))
        usage = Usage(len(talk.tokens), len(answer), cached)
        core.finish(ticket, Outcome.DONE, float(n), usage=usage)
        assert core.members.tied(ticket, len(talk.tokens), PAGE_TOKENS, pages)
        talk.tokens += answer
        replica.compute(talk.tokens)
        talk.grow()
    before = replica.cached_tokens(talk.tokens)
    assert talk.ask(core, 9.0).cached_tokens == before > len(pages) * PAGE_TOKENS
    # The answer's last page is gone: so much less is there.
    last = replica.prompts[-1][-1]
    replica.held.discard(last)
    replica.tell(Change(Kind.REMOVED, Medium.GPU, None, array("q", [last])))
    assert talk.ask(core, 9.0).cached_tokens == replica.cached_tokens(talk.tokens) < before


def test_pages_that_are_not_there_are_no_prompts_that_was_just_computed() -> None:
    dice = random.Random(5)
    core, replicas = rig(1)
    talk = talk_of("s", dice)
    ticket = talk.ask(core, 0.0)
    pages = replicas["r0"].compute(talk.tokens)
    core.began(ticket, 0.0)
    other = array("q", [page ^ 1 for page in pages])
    tied, n = core.members.tied, len(talk.tokens)
    assert not tied(ticket, n, PAGE_TOKENS, other)
    assert not tied(ticket, n, PAGE_TOKENS, pages[:-1])
    assert not tied(ticket, 0, PAGE_TOKENS, pages)
    assert not tied(ticket, n, 0, pages)
    assert tied(ticket, n, PAGE_TOKENS, pages)
    # The engine counts otherwise: the tie is given up.
    core.finish(ticket, Outcome.DONE, 1.0, usage=Usage(n + 40, 3, 0))
    pin = core.pins.get("s")
    assert pin is not None
    assert pin.tie is None
    assert not tied(ticket, n, PAGE_TOKENS, pages)


def test_a_part_of_the_story_proves_what_is_there_but_not_what_is_not() -> None:
    dice = random.Random(6)
    core, replicas = rig(1)
    replica = replicas["r0"]
    talk, other = talk_of("s", dice), talk_of("t", dice)
    for each in (talk, other):
        tied_turn(core, replicas, each, 0.0)
    replica.said(Said.BEGUN)
    replica.said(Said.PARTIAL)
    talk.grow()
    assert talk.ask(core, 1.0).cached_tokens > 0  # as the index has it
    tied_turn(core, replicas, talk, 2.0)  # it was just computed: its pages are known from here on
    talk.grow()
    assert tied_turn(core, replicas, talk, 3.0) == 0
    replica.evict(random.Random(1))
    for _ in range(6):
        replica.evict(dice)
        talk.grow()
        assert tied_turn(core, replicas, talk, 4.0) == 0


def test_the_source_is_the_best_there_is() -> None:
    core, replicas = rig(1)
    beliefs = core.beliefs

    def source() -> Source:
        return beliefs.source("r0", reports_cached=False)

    assert source() is Source.EVENTS
    assert beliefs.age_s("r0", 5.0) == 5.0
    replicas["r0"].said(Said.LOST)
    assert source() is Source.ASSUMED
    assert beliefs.age_s("r0", 5.0) is None
    assert beliefs.source("r0", reports_cached=True) is Source.REPORTED
    tied_turn(core, replicas, talk_of("s", random.Random(7)), 1.0)
    assert source() is Source.REPORTED
    assert beliefs.age_s("r0", 5.0) == 4.0
    replicas["r0"].said(Said.WHOLE)  # its story goes on: nothing was forgotten
    assert source() is Source.EVENTS
    core.members.heard("r0", Event.CONNECT_FAILED, 2.0)
    replicas["r0"].said(Said.WHOLE)  # but now it was: it has to begin anew
    assert source() is Source.REPORTED
    assert not replicas["r0"].tell(Change(Kind.CLEARED))
    replicas["r0"].restart()
    assert source() is Source.EVENTS
    core.members.leave("r0")
    assert source() is Source.ASSUMED
    assert beliefs.feeds.n_live == 0


def test_a_replica_with_several_caches_is_believed_once_all_are_followed() -> None:
    core = make_core(1)
    pages = array("q", [1, 2, 3])

    def said(said: Said, rank: int) -> None:
        core.members.fed("r0", Feeding(said, PAGE_TOKENS, rank, 2), 0.0)

    for rank in (0, 1):
        said(Said.BEGUN, rank)
        core.members.paged("r0", rank, [Change(Kind.STORED, Medium.GPU, None, pages[:rank])], 0.0)
        assert core.beliefs.feeds.live("r0") is None
        said(Said.WHOLE, rank)
    feed = core.beliefs.feeds.live("r0")
    assert feed is not None
    assert feed.leading(pages, 3) == 1
    said(Said.LOST, 1)
    assert core.beliefs.feeds.live("r0") is None


@pytest.mark.parametrize(
    "told",
    [
        Feeding(Said.BEGUN, 0),
        Feeding(Said.BEGUN, 64, rank=-1),
        Feeding(Said.BEGUN, 64, rank=1),
        Feeding(Said.LOST, 64),
    ],
)
def test_what_cannot_be_is_not_believed(told: Feeding) -> None:
    core = make_core(1)
    core.members.fed("r0", told, 0.0)
    core.members.fed("nobody", Feeding(Said.BEGUN, 64), 0.0)
    assert core.beliefs.feeds.get("r0") is None
    assert core.beliefs.feeds.get("nobody") is None
    assert not core.members.paged("r0", 0, [Change(Kind.CLEARED)], 0.0)


def test_ties_are_bounded_and_the_longest_unused_goes() -> None:
    dice = random.Random(8)
    core, replicas = rig(1)
    talks = [talk_of(f"s{n}", dice) for n in range(6)]
    for talk in talks:
        for _ in range(5):
            talk.grow()
    core.beliefs.ties._pages_max = sum(len(t.tokens) // PAGE_TOKENS for t in talks[3:])
    for talk in talks:
        tied_turn(core, replicas, talk, 0.0)
    assert len(core.beliefs.ties) == 3
    assert core.beliefs.ties.n_pages <= core.beliefs.ties._pages_max
    talks[-1].grow()
    assert tied_turn(core, replicas, talks[-1], 1.0) == 0

"""Where replicas tell of their pages, what is predicted of a tied session is what is there."""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

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
from tests.doubles.paged_replica import PAGE_TOKENS, PagedReplica
from tests.doubles.prompts import prompt

if TYPE_CHECKING:
    from router.core import RouterCore, Ticket

N_HEAD = 2


@dataclass
class Talk:
    """A session whose segments have sizes of their own in bytes and in tokens."""

    key: str
    dice: random.Random
    segments: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def grow(self) -> None:
        self.segments.append(self.dice.getrandbits(60))
        self.lengths.append(self.dice.randrange(50, 4_000))
        self.tokens += [self.dice.getrandbits(17) for _ in range(self.dice.randrange(5, 150))]

    def ask(self, core: RouterCore, now_s: float) -> Ticket:
        facts = prompt(self.segments, key=self.key, head_segments=N_HEAD)
        facts.ends_bytes = array("I", accumulate(self.lengths))
        return core.arrive(facts, now_s)


def _rig(n: int = 2, policy: str = "home") -> tuple[RouterCore, dict[str, PagedReplica]]:
    core = make_core(n, policy=policy)
    replicas = {f"r{i}": PagedReplica(core, f"r{i}") for i in range(n)}
    for replica in replicas.values():
        replica.restart()
    return core, replicas


def _talk(key: str, dice: random.Random, head: Talk | None = None) -> Talk:
    talk = Talk(key, dice)
    if head is None:
        for _ in range(N_HEAD + 1):
            talk.grow()
    else:
        talk.segments, talk.lengths = head.segments[:N_HEAD], head.lengths[:N_HEAD]
        talk.tokens = head.tokens[: sum(1 for _ in head.tokens)]
    return talk


def _turn(core: RouterCore, replicas: dict[str, PagedReplica], talk: Talk, now_s: float) -> int:
    """One turn that is tied; answers predicted less reported cached tokens."""
    ticket = talk.ask(core, now_s)
    replica = replicas[ticket.replica_id]
    cached = replica.cached_tokens(talk.tokens)
    pages = replica.compute(talk.tokens)
    core.began(ticket, now_s)
    core.finish(ticket, Outcome.DONE, now_s, usage=Usage(len(talk.tokens), 3, cached))
    assert core.members.tied(ticket, len(talk.tokens), PAGE_TOKENS, pages)
    return ticket.cached_tokens - cached


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_whatever_happens_to_caches_a_tied_session_is_predicted_to_the_page(seed: int) -> None:
    dice = random.Random(seed)
    core, replicas = _rig()
    head = _talk("head", dice)
    del head.segments[N_HEAD:], head.lengths[N_HEAD:]
    talks = [_talk(f"s{n}", dice, head) for n in range(5)]
    for talk in talks:
        talk.grow()
        _turn(core, replicas, talk, 1.0)
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
        assert _turn(core, replicas, talk, now_s) == 0
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
    core, replicas = _rig(1)
    head = _talk("head", dice)
    del head.segments[N_HEAD:], head.lengths[N_HEAD:]
    errors = []
    for n in range(4):
        talk = _talk(f"s{n}", dice, head)
        talk.grow()
        errors.append(_turn(core, replicas, talk, float(n)))
    assert errors[2:] == [0, 0]
    replicas["r0"].flush()
    talk = _talk("last", dice, head)
    talk.grow()
    assert _turn(core, replicas, talk, 10.0) == 0


def test_the_pages_of_an_answer_count_as_far_as_they_are_there() -> None:
    dice = random.Random(4)
    core, replicas = _rig(1)
    replica, talk = replicas["r0"], _talk("s", dice)
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
    core, replicas = _rig(1)
    talk = _talk("s", dice)
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
    core, replicas = _rig(1)
    replica = replicas["r0"]
    talk, other = _talk("s", dice), _talk("t", dice)
    for each in (talk, other):
        _turn(core, replicas, each, 0.0)
    replica.said(Said.BEGUN)
    replica.said(Said.PARTIAL)
    talk.grow()
    assert talk.ask(core, 1.0).cached_tokens > 0  # as the index has it
    _turn(core, replicas, talk, 2.0)  # it was just computed: its pages are known from here on
    talk.grow()
    assert _turn(core, replicas, talk, 3.0) == 0
    replica.evict(random.Random(1))
    for _ in range(6):
        replica.evict(dice)
        talk.grow()
        assert _turn(core, replicas, talk, 4.0) == 0


def test_the_source_is_the_best_there_is() -> None:
    core, replicas = _rig(1)
    beliefs = core.beliefs

    def source() -> Source:
        return beliefs.source("r0", reports_cached=False)

    assert source() is Source.EVENTS
    assert beliefs.age_s("r0", 5.0) == 5.0
    replicas["r0"].said(Said.LOST)
    assert source() is Source.ASSUMED
    assert beliefs.age_s("r0", 5.0) is None
    assert beliefs.source("r0", reports_cached=True) is Source.REPORTED
    _turn(core, replicas, _talk("s", random.Random(7)), 1.0)
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
    core, replicas = _rig(1)
    talks = [_talk(f"s{n}", dice) for n in range(6)]
    for talk in talks:
        for _ in range(5):
            talk.grow()
    core.beliefs.ties._pages_max = sum(len(t.tokens) // PAGE_TOKENS for t in talks[3:])
    for talk in talks:
        _turn(core, replicas, talk, 0.0)
    assert len(core.beliefs.ties) == 3
    assert core.beliefs.ties.n_pages <= core.beliefs.ties._pages_max
    talks[-1].grow()
    assert _turn(core, replicas, talks[-1], 1.0) == 0


def _plain_turn(core: RouterCore, replicas: dict[str, PagedReplica], talk: Talk) -> tuple[int, int]:
    """One turn that nobody ties; answers predicted and reported cached tokens."""
    ticket = talk.ask(core, 1.0)
    replica = replicas[ticket.replica_id]
    cached = replica.cached_tokens(talk.tokens)
    replica.compute(talk.tokens)
    core.began(ticket, 1.0)
    core.finish(ticket, Outcome.DONE, 1.0, usage=Usage(len(talk.tokens), 3, cached))
    return ticket.cached_tokens, cached


@pytest.mark.parametrize("seed", range(20))
def test_what_one_session_ties_takes_nothing_from_others_with_its_head(seed: int) -> None:
    dice = random.Random(seed)
    core, replicas = _rig()
    head = _talk("head", dice)
    del head.segments[N_HEAD:], head.lengths[N_HEAD:]
    talks = [_talk(f"s{n}", dice, head) for n in range(8)]
    for talk in talks:
        for _ in range(3):
            talk.grow()
        _plain_turn(core, replicas, talk)
    for talk in talks[4:]:
        for _ in range(2):
            talk.grow()
            _turn(core, replicas, talk, 1.0)
    for talk in talks[:4]:
        before = len(talk.tokens)
        talk.grow()
        predicted, cached = _plain_turn(core, replicas, talk)
        assert cached > before - PAGE_TOKENS
        assert predicted > 0.8 * cached - 2 * PAGE_TOKENS


@pytest.mark.parametrize("n_replicas", [1, 2])
def test_the_guess_of_a_head_is_not_what_a_session_holds(n_replicas: int) -> None:
    """Of one prompt alone nobody knows where its head ends: its pages may be another session's."""
    dice = random.Random(9)
    core, replicas = _rig(n_replicas, policy="rendezvous")
    head = _talk("head", dice)
    del head.segments[N_HEAD:], head.lengths[N_HEAD:]
    one, other = _talk("one", dice, head), _talk("two", dice, head)
    for talk in (one, other):
        talk.grow()
    other.lengths[-1] = 50  # by bytes, nearly all of its tokens seem to belong to the head
    other.tokens += [dice.getrandbits(17) for _ in range(2_000)]
    _plain_turn(core, replicas, one)
    _turn(core, replicas, other, 1.0)
    assert len({core.pins.get(talk.key).home_id for talk in (one, other)}) == n_replicas
    for _ in range(4):
        one.grow()
        predicted, cached = _plain_turn(core, replicas, one)
        assert abs(predicted - cached) <= 0.2 * cached + 2 * PAGE_TOKENS


def test_a_flush_of_the_time_before_takes_nothing_from_requests_since() -> None:
    dice = random.Random(10)
    core, replicas = _rig(1)
    replica, talk = replicas["r0"], _talk("s", dice)
    replica.said(Said.BEGUN)
    _plain_turn(core, replicas, talk)
    replica.tell(Change(Kind.CLEARED))  # replayed: it was before
    replica.tell(Change(Kind.STORED, Medium.GPU, None, replica.prompts[-1]))
    replica.said(Said.WHOLE)
    talk.grow()
    predicted, cached = _plain_turn(core, replicas, talk)
    assert cached
    assert predicted > 0.8 * cached
    replica.flush()
    talk.grow()
    assert _plain_turn(core, replicas, talk) == (0, 0)


def _home_of(core: RouterCore, talk: Talk) -> str:
    """Where it would be placed; nothing is computed there."""
    ticket = talk.ask(core, 0.0)
    core.finish(ticket, Outcome.CLIENT_GONE, 0.0)
    return ticket.replica_id


@pytest.mark.parametrize("seed", range(12))
def test_a_page_that_two_sessions_share_in_part_takes_nothing_from_either(seed: int) -> None:
    """A fork goes on elsewhere from within a page: that page is another one there, and what is before it is not."""
    dice = random.Random(seed)
    core, replicas = _rig(policy="rendezvous")
    one = _talk("one", dice)
    for _ in range(3):
        one.grow()
    _turn(core, replicas, one, 0.0)
    pin = core.pins.get("one")
    assert pin is not None
    fork = Talk("fork", dice, one.segments[:5], one.lengths[:5], list(one.tokens))
    while _home_of(core, fork) == pin.home_id:
        fork.key += "s"
    one.grow()
    for _ in range(2):
        fork.grow()
    _plain_turn(core, replicas, fork)
    for _ in range(3):
        _turn(core, replicas, one, 1.0)
        one.grow()
    fork.grow()
    predicted, cached = _plain_turn(core, replicas, fork)
    assert predicted > 0.8 * cached - 2 * PAGE_TOKENS

"""Pages and chains of played prompts are equal exactly where a plain list of tokens is equal."""

from __future__ import annotations

import random
from array import array
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.workload.play.content import BYTES_PER_TOKEN, SEGMENT_TOKENS, Content, Sharing
from sim.workload.play.lanes import LaneOptions, Lanes
from sim.workload.play.prompts import append_numbers
from sim.workload.traces.model import NO_PARENT
from tests.doubles.played import Drawn, Row, play_all, workload_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from tests.doubles.played import Sent

PAGE = 64
BLOCK = 600
UNIT = 8
"""Everything has a multiple of so many tokens, so the reference lists that many at a time."""


@st.composite
def grown(draw: st.DrawFn, alphabet: int) -> list[Row]:
    """Turns that mostly append, now and then after cutting back."""
    rows: list[Row] = []
    ids: list[int] = []
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.integers(0, 3)) == 0:
            ids = ids[: draw(st.integers(0, len(ids)))]
        ids = ids + draw(st.lists(st.integers(0, alphabet), max_size=5))
        tail = UNIT * draw(st.integers(0 if ids else 1, 150))
        rows.append(Row(tuple(ids), tail, draw(st.floats(0.0, 9.0))))
    return rows


@st.composite
def drawn_sessions(draw: st.DrawFn) -> list[Drawn]:
    sessions: list[Drawn] = []
    for number in range(draw(st.integers(1, 5))):
        rows = draw(grown(draw(st.sampled_from([1, 3]))))
        parent = draw(st.integers(NO_PARENT, number - 1))
        after = -1 if parent == NO_PARENT else draw(st.integers(-1, len(sessions[parent].rows) - 1))
        head = draw(st.sampled_from([0, 0, 700, 1_800]))
        is_joined = parent != NO_PARENT and draw(st.booleans())
        sessions.append(Drawn(rows, parent, after, is_joined=is_joined, head_tokens=head))
    return sessions


class Reference(NamedTuple):
    """Every prompt as a list of what its tokens are, a few at a time, each with all before it."""

    sessions: Sequence[Drawn]
    has_heads: bool

    def tokens(self, index: int, playing: str) -> list[Hashable]:
        number, step = next(
            place
            for i, place in enumerate(
                (n, step) for n, s in enumerate(self.sessions) for step in range(len(s.rows))
            )
            if i == index
        )
        rows = self.sessions[number].rows
        row, after = rows[step], rows[step + 1 : step + 2]
        size = (len(row.ids) * BLOCK + row.tail_tokens) // UNIT
        named = self.named(row.ids, playing)
        if after and tuple(after[0].ids[: len(row.ids)]) == tuple(row.ids):
            named = self.named(after[0].ids, playing)[:size]
        return named + [("tail", playing, index, depth) for depth in range(len(named), size)]

    def named(self, ids: Sequence[int], playing: str) -> list[Hashable]:
        found: list[Hashable] = []
        for depth in range(0, len(ids) * BLOCK, UNIT):
            prefix = tuple(ids[: depth // BLOCK + 1])
            owner = "" if self.is_shared(prefix, depth) else playing
            found.append((owner, prefix, depth % BLOCK))
        return found

    def is_shared(self, prefix: tuple[int, ...], depth: int) -> bool:
        if not self.has_heads:
            return False
        families = {
            self.family(number)
            for number, session in enumerate(self.sessions)
            if any(tuple(row.ids[: len(prefix)]) == prefix for row in session.rows)
        }
        return len(families) > 1 or any(
            tuple(session.rows[0].ids[: len(prefix)]) == prefix
            and depth < session.head_tokens // BLOCK * BLOCK
            for session in self.sessions
        )

    def family(self, number: int) -> int:
        while self.sessions[number].parent != NO_PARENT:
            number = self.sessions[number].parent
        return number


def common(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    n = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        n += 1
    return n


@settings(deadline=None, max_examples=60)
@given(
    sessions=drawn_sessions(),
    has_heads=st.booleans(),
    seed=st.integers(0, 1_000),
    from_middle=st.booleans(),
)
def test_ids_are_equal_where_tokens_are(
    sessions: list[Drawn], seed: int, *, has_heads: bool, from_middle: bool
) -> None:
    workload = workload_of(sessions, block=BLOCK)
    content = Content(workload, PAGE, Sharing(has_heads=has_heads))
    play = Lanes(content, LaneOptions(2, seed, is_from_middle=from_middle))
    reference = Reference(sessions, has_heads)
    dice = random.Random(seed)
    known: set[int] = set()
    sent: list[tuple[Sent, list[Hashable]]] = []
    for one in play_all(
        play,
        lambda _: dice.uniform(0.1, 20.0),
        page_tokens=PAGE,
        n_max=24,
        on_ended=lambda one: known.update(one.prompt.output_pages),
    ):
        prompt, turn = one.prompt, one.turn
        tokens = reference.tokens(turn.output_tokens - 1, turn.session_key)
        size = turn.prompt_tokens
        assert len(tokens) * UNIT == size
        assert len(prompt.pages) == size // PAGE
        assert prompt.ends_bytes[-1] == BYTES_PER_TOKEN * size
        steps = [after - before for before, after in pairwise([0, *prompt.ends_bytes])]
        assert min(steps) > 0
        assert max(steps) <= BYTES_PER_TOKEN * SEGMENT_TOKENS
        found = next((i for i, p in enumerate(prompt.pages) if p not in known), len(prompt.pages))
        assert prompt.ceiling_tokens == min(found, (size - 1) // PAGE) * PAGE
        known.update(prompt.pages)
        sent.append((one, tokens))
    for index, (one, tokens) in enumerate(sent):
        pages = one.prompt.pages
        assert one.path_pages[: len(pages)] == pages, "what is in the array does not change"
        for other, other_tokens in sent[:index]:
            check_pair(one, other, UNIT * common(tokens, other_tokens))


def check_pair(one: Sent, other: Sent, n_common: int) -> None:
    assert common(one.prompt.pages, other.prompt.pages) == n_common // PAGE
    assert len(set(one.prompt.pages) & set(other.prompt.pages)) == n_common // PAGE
    mine = dict(zip(one.prompt.ends_bytes, one.prompt.chain, strict=True))
    theirs = dict(zip(other.prompt.ends_bytes, other.prompt.chain, strict=True))
    for end in mine.keys() & theirs.keys():
        assert (mine[end] == theirs[end]) == (end <= BYTES_PER_TOKEN * n_common)
    equal = set(mine.values()) & set(theirs.values())
    assert equal == {value for end, value in mine.items() if theirs.get(end) == value}


@settings(deadline=None, max_examples=60)
@given(sessions=drawn_sessions(), seed=st.integers(0, 1_000))
def test_a_turn_that_continues_is_seen_to(sessions: list[Drawn], seed: int) -> None:
    """The end of a prompt is a place in the chain of what goes on from it, and its answer is there."""
    play = Lanes(
        Content(workload_of(sessions, block=BLOCK), PAGE, Sharing()),
        LaneOptions(1, seed, is_once=True),
    )
    by_turn = {one.turn.output_tokens - 1: one for one in play_all(play, page_tokens=PAGE)}
    first = 0
    for session in sessions:
        for step, (row, after) in enumerate(pairwise(session.rows)):
            index = first + step
            prompt, following = by_turn[index].prompt, by_turn[index + 1].prompt
            size = len(row.ids) * BLOCK + row.tail_tokens
            goes_on = tuple(after.ids[: len(row.ids)]) == tuple(row.ids)
            if goes_on and len(after.ids) * BLOCK >= size:
                assert following.chain[: len(prompt.chain)] == prompt.chain
                named = len(after.ids) * BLOCK // PAGE
                expected = following.pages[size // PAGE : min(named, (size + index + 1) // PAGE)]
                assert prompt.output_pages == expected
            elif not goes_on:
                assert not prompt.output_pages
        first += len(session.rows)


@settings(deadline=None)
@given(st.integers(0, (1 << 63) - 1_000_000), st.integers(0, 3_000), st.sampled_from([0, 0xFFFF]))
def test_numbers_in_a_row(first: int, n: int, edge: int) -> None:
    first |= edge  # at the edge the next one differs in its higher bits as well
    ids = array("Q", [7])
    append_numbers(ids, first, first + n)
    assert ids == array("Q", [7, *range(first, first + n)])


def test_many_numbers_in_a_row() -> None:
    ids = array("Q")
    append_numbers(ids, 65_000, 200_000)
    assert ids == array("Q", range(65_000, 200_000))

"""Chains told by what is new: both sides remember the same, within one bound."""

from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.recording.chains import ENTRY_LINKS, ChainMemory, lengths_of
from router.recording.errors import RecordingError


def ends_of(chain: list[int]) -> array[int]:
    return array("I", [(at + 1) * 100 for at in range(len(chain))])


class Pair:
    """A writer and a reader; ``tell`` answers how many links had to be told."""

    def __init__(self, links_max: int = 10_000) -> None:
        self.writer = ChainMemory(links_max)
        self.reader = ChainMemory(links_max)

    def tell(self, session: str, links: list[int]) -> int:
        chain, ends, key = array("Q", links), ends_of(links), session.encode()
        shared = self.writer.shorten(key, chain, ends)
        new = chain[shared.common :]
        told = self.reader.restore(
            key, (shared.back, shared.common), new.tobytes(), lengths_of(ends, shared)
        )
        assert told == (chain, ends)
        assert self.writer._known.keys() == self.reader._known.keys()
        assert self.writer._n_links == sum(
            len(known.chain) + ENTRY_LINKS for known in self.writer._known.values()
        )
        return len(new)


def test_a_turn_costs_its_new_segments() -> None:
    pair = Pair()
    assert pair.tell("a", [1, 2, 3]) == 3
    assert pair.tell("a", [1, 2, 3, 4, 5]) == 2
    assert pair.tell("a", [1, 2, 3, 4, 5]) == 0
    assert pair.tell("a", [1, 2, 9]) == 1  # a branch
    assert pair.tell("a", [1, 2, 3, 4, 5, 6]) == 1  # the main line is still known
    assert pair.tell("a", []) == 0
    assert pair.tell("a", [7]) == 1
    assert pair.tell("a", [1, 2, 9, 10]) == 1


def test_a_new_session_shares_the_tools_of_another() -> None:
    pair = Pair()
    pair.tell("a", [1, 2, 3, 4])
    assert pair.tell("b", [1, 2, 8]) == 1
    assert pair.tell("c", [5, 2, 8]) == 3


def test_old_chains_are_forgotten_and_told_whole_again() -> None:
    pair = Pair(links_max=2 * ENTRY_LINKS + 10)
    pair.tell("a", [1, 2, 3, 4])
    pair.tell("b", [11, 12, 13, 14])
    pair.tell("c", [21, 22, 23, 24])
    assert pair.tell("a", [1, 2, 3, 4, 5]) == 5
    long = list(range(100, 300))
    assert pair.tell("d", long) == 200  # more than fits is not remembered
    assert pair.tell("d", long) == 200
    assert Pair(links_max=0).tell("a", [1]) == 1


def test_tiny_prompts_do_not_fill_the_memory() -> None:
    memory = ChainMemory(10_000)
    for n in range(1, 1_000):
        memory.shorten(b"%d" % n, array("Q", [n]), array("I", [5]))
    assert len(memory._known) == len(memory._sessions) == len(memory._openings) == 196


def test_a_session_keeps_few_branches() -> None:
    pair = Pair()
    for n in range(50):
        pair.tell("a", [1, 100 + n])
    assert len(pair.writer._known) == 4


def test_clearing_forgets_all() -> None:
    memory = ChainMemory(10)
    memory.shorten(b"a", array("Q", [1]), array("I", [5]))
    memory.clear()
    assert memory.shorten(b"a", array("Q", [1]), array("I", [5])).back == 0


def test_equal_links_with_other_lengths_are_told_whole() -> None:
    memory = ChainMemory()
    memory.shorten(b"a", array("Q", [1, 2]), array("I", [5, 9]))
    assert memory.shorten(b"a", array("Q", [1, 2]), array("I", [5, 10])).common == 0


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32), links_max=st.sampled_from((0, 60, 400, 10_000)))
def test_both_sides_agree_whatever_comes(seed: int, links_max: int) -> None:
    dice = random.Random(seed)
    pair = Pair(links_max)
    chains: dict[str, list[int]] = {}
    for _ in range(120):
        session = f"s{dice.randrange(8)}"
        chain = chains.setdefault(session, [dice.randrange(3)])
        if dice.random() < 0.3:
            del chain[dice.randint(0, len(chain)) :]
        chain.extend(dice.getrandbits(30) for _ in range(dice.randrange(4)))
        pair.tell(session, chain)


@pytest.mark.parametrize(
    ("shared", "links", "lengths", "said"),
    [
        ((1, 1), b"", (), "continues 1 segments of the arrival 1 before it"),
        ((0, 2), b"", (), "continues 2 segments"),
        ((1, 0), b"", (), "continues 0 segments"),
        ((10**9, 5), b"", (), "continues 5 segments"),
        ((0, 0), b"12345678", (), "do not fit"),
        ((0, 0), b"123", (1,), "do not fit"),
        ((0, 0), b"12345678", (2**40,), "over 4 GiB"),
        ((0, 0), b"12345678" * 2, (2**31, 2**31), "over 4 GiB"),
    ],
)
def test_a_chain_that_does_not_fit_is_refused(
    shared: tuple[int, int], links: bytes, lengths: tuple[int, ...], said: str
) -> None:
    with pytest.raises(RecordingError, match=said):
        ChainMemory().restore(b"a", shared, links, lengths)

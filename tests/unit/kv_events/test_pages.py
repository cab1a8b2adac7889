"""The pages of one cache against a plain model: a set a medium, and what follows what."""

from __future__ import annotations

from array import array
from hashlib import sha256

from hypothesis import given, settings
from hypothesis import strategies as st

from hashing.pages import page_numbers
from router.state.cache.pages import Change, Kind, Medium, PageCache

PROMPTS = [[10 * n + i + 1 for i in range(6)] for n in range(3)]
PROMPTS += [[*PROMPTS[0][:3], 100, 101, 102], [*PROMPTS[0][:3], 100, 110]]


def stored(pages: list[int], parent: int | None = None, medium: Medium = Medium.GPU) -> Change:
    return Change(Kind.STORED, medium, parent, array("q", pages))


def removed(pages: list[int], medium: Medium = Medium.GPU) -> Change:
    return Change(Kind.REMOVED, medium, None, array("q", pages))


_STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just(Kind.STORED),
            st.sampled_from(list(Medium)),
            st.sampled_from(PROMPTS),
            st.integers(0, 5),
            st.integers(1, 6),
        ),
        st.tuples(
            st.just(Kind.REMOVED),
            st.sampled_from(list(Medium)),
            st.sampled_from(PROMPTS),
            st.integers(0, 5),
            st.just(6),
        ),
        st.tuples(st.just(Kind.CLEARED), st.just(Medium.GPU), st.just([1]), st.just(0), st.just(1)),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=300)
@given(steps=_STEPS)
def test_a_page_is_held_while_any_medium_holds_it(
    steps: list[tuple[Kind, Medium, list[int], int, int]],
) -> None:
    cache = PageCache()
    model: dict[Medium, set[int]] = {medium: set() for medium in Medium}
    for kind, medium, prompt, at, end in steps:
        pages = prompt[at:end]
        if kind is Kind.STORED:
            assert cache.apply(stored(pages, prompt[at - 1] if at else None, medium))
            model[medium].update(pages)
        elif kind is Kind.REMOVED:
            assert cache.apply(removed(pages, medium))
            model[medium].difference_update(pages)
        else:
            assert cache.apply(Change(Kind.CLEARED))
            for held in model.values():
                held.clear()
        union = set().union(*model.values())
        assert len(cache) == len(union)
        assert {page for prompt in PROMPTS for page in prompt if page in cache} == union
        for each in PROMPTS:
            there = [page in union for page in each]
            if there == sorted(there, reverse=True):  # engines store from the front
                assert cache.leading(array("q", each), len(each)) == sum(there)


def test_what_follows_is_the_newest_that_is_there() -> None:
    cache = PageCache()
    cache.apply(stored([1, 2, 3]))
    cache.apply(stored([4, 5, 6], parent=3))
    assert [cache.following(3, limit) for limit in (0, 2, 9)] == [0, 2, 3]
    cache.apply(stored([7], parent=3))
    assert cache.following(3, 9) == 1
    cache.apply(stored([4], parent=3, medium=Medium.CPU))  # a copy elsewhere is nothing new
    assert cache.following(3, 9) == 1
    cache.apply(removed([7]))
    assert cache.following(3, 9) == 0


def test_more_pages_than_are_kept_are_refused() -> None:
    cache = PageCache(pages_max=3)
    assert cache.apply(stored([1, 2, 3]))
    assert cache.apply(stored([1, 2, 3]))
    assert not cache.apply(stored([4], parent=3))


def test_what_was_just_computed_is_known_but_for_what_was_removed_since() -> None:
    cache = PageCache()
    cache.begin(1)
    cache.apply(removed([3]))
    cache.know(array("q", [1, 2, 3, 4]))
    assert cache.leading(array("q", [1, 2, 3, 4]), 4) == 2
    cache.apply(stored([3], parent=2))
    cache.know(array("q", [1, 2, 3, 4]))
    assert cache.leading(array("q", [1, 2, 3, 4]), 4) == 4


@given(ids=st.lists(st.integers(0, 2**32 - 1), max_size=30), page_tokens=st.integers(1, 8))
def test_a_page_has_the_engines_number(ids: list[int], page_tokens: int) -> None:
    for salt in (None, "a salt"):
        prior, expected = b"", []
        if salt:
            prior = sha256(b"sglang-cache-salt-v1\0" + salt.encode()).digest()
        for at in range(0, len(ids) - page_tokens + 1, page_tokens):
            raw = b"".join(i.to_bytes(4, "little") for i in ids[at : at + page_tokens])
            prior = sha256(prior + raw).digest()
            expected.append(int.from_bytes(prior[:8], "big", signed=True))
        assert list(page_numbers(ids, page_tokens, salt)) == expected

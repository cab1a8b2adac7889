"""Names and links: equal ones stay equal, and none can be read or guessed without the salt."""

from __future__ import annotations

import zlib
from array import array

from hypothesis import given
from hypothesis import strategies as st

from router.recording.codec import MAGIC
from router.recording.seal import Seal, name_of
from tests.doubles.core_drill import Drill
from tests.doubles.recordings import SALT, packed, recorded


@given(st.text(max_size=40), st.text(max_size=40))
def test_equal_names_and_only_those_are_equal_sealed(one: str, other: str) -> None:
    seal, again = Seal(b"salt"), Seal(b"salt")
    assert (seal.session(one) == again.session(other)) == (one == other)
    assert (seal.model(one) == again.model(other)) == (one == other)
    assert seal.session(one) == seal.session(one)
    assert seal.session(one) != seal.model(one)
    assert seal.session(one) != Seal(b"salt 2").session(one)
    assert len(name_of(seal.session(one))) == 16


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_links_agree_where_chains_agree(chain: list[int]) -> None:
    seal = Seal(b"salt")
    sealed = array("Q", seal.links(array("Q", chain)))
    assert len(sealed) == len(chain)
    for at, link in enumerate(chain):
        alone = array("Q", seal.links(array("Q", [link])))
        assert sealed[at] == alone[0]
    assert len(set(sealed)) == len(set(chain))


def test_a_surrogate_in_a_name_is_sealed_like_any_other() -> None:
    assert Seal(b"s").session("\ud800") != Seal(b"s").session("\ud801")


def test_many_names_do_not_fill_the_memory() -> None:
    seal = Seal(b"salt")
    first = seal.session("name-0")
    for n in range(10_000):
        seal.session(f"name-{n}")
    assert len(seal._known_sessions) <= 4096
    assert seal.session("name-0") == first


def test_a_recording_holds_no_key_no_model_no_link_and_not_the_salt() -> None:
    core, journal = recorded(seed=5)
    drill = Drill(core, 5)
    drill.run(600)
    data = zlib.decompress(packed(journal.records).removeprefix(MAGIC))
    assert len(drill.arrived) > 100
    assert SALT not in data
    for facts in drill.arrived:
        for name in (facts.session_key, facts.model, facts.parent_key):
            assert not name or name.encode() not in data
        for link in facts.chain:
            assert link.to_bytes(8, "little") not in data
            assert link.to_bytes(8, "big") not in data

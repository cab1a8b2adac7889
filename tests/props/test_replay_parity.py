"""A recording told to a fresh core gives the same decisions and the same beliefs, for every policy."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from router.policy import registry
from router.recording.player import Player, arrivals
from router.recording.records import Placed
from router.recording.seal import Seal, name_of
from tests.doubles.core_drill import PARAMETERS, Drill, beliefs
from tests.doubles.recordings import SALT, packed, reading, recorded

if TYPE_CHECKING:
    from router.core import CoreParameters

STEPS = 300


@pytest.mark.parametrize("name", sorted(registry.POLICIES))
@settings(deadline=None, max_examples=8)
@given(
    seed=st.integers(0, 2**32),
    parameters=st.sampled_from(PARAMETERS),
    links_max=st.sampled_from((300, 10_000)),
)
def test_a_replay_equals_what_was_recorded(
    name: str, seed: int, parameters: CoreParameters, links_max: int
) -> None:
    core, journal = recorded(name, seed=seed, parameters=parameters, links_max=links_max)
    drill = Drill(core, seed)
    drill.run(STEPS)
    recording = reading(packed(journal.records))
    player = Player(recording.header)
    assert list(player.play(recording)) == []
    assert not recording.is_truncated
    tally = player.tally
    assert (tally.placed, tally.refused, tally.moved) == (
        drill.n_placed,
        drill.n_refused,
        drill.n_moved,
    )
    seal = Seal(SALT)
    live = beliefs(
        core, lambda key: name_of(seal.session(key)), lambda name: name_of(seal.model(name))
    )
    replayed = beliefs(player.core)
    assert replayed == live


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_one_changed_decision_is_found_where_it_is(seed: int, data: st.DataObject) -> None:
    core, journal = recorded(seed=seed)
    Drill(core, seed).run(80)
    places = [at for at, row in enumerate(journal.records) if isinstance(row, Placed)]
    at = data.draw(st.sampled_from(places))
    row = journal.records[at]
    assert isinstance(row, Placed)
    changed = data.draw(
        st.sampled_from(
            (
                Placed(row.ticket, ("r9", *row.ranked), row.reason, row.home_id, 1, 0),
                Placed(row.ticket, row.ranked, "luck", row.home_id, row.prompt_tokens, 0),
                Placed(row.ticket, row.ranked, row.reason, "r9", row.prompt_tokens, 0),
            )
        )
    )
    journal.records[at] = changed
    recording = reading(packed(journal.records))
    found = list(Player(recording.header).play(recording))
    assert len(found) == 1
    assert found[0].number == at + 1
    assert repr(changed) in str(found[0])


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**32), links_max=st.sampled_from((0, 300, 10_000)))
def test_arrivals_are_what_arrived(seed: int, links_max: int) -> None:
    core, journal = recorded(seed=seed, links_max=links_max)
    drill = Drill(core, seed)
    drill.run(150)
    recording = reading(packed(journal.records))
    rows = list(arrivals(recording.header, recording))
    assert [row.number for row in rows] == list(range(1, len(drill.arrived) + 1))
    seal = Seal(SALT)
    for row, facts in zip(rows, drill.arrived, strict=True):
        largest = facts.output_tokens_max
        parent = facts.parent_key
        assert row.facts == structs.replace(
            facts,
            model=name_of(seal.model(facts.model)) if facts.model else "",
            session_key=name_of(seal.session(facts.session_key)),
            parent_key=None if parent is None else name_of(seal.session(parent)),
            chain=array("Q", seal.links(facts.chain)),
            output_tokens_max=None if largest is None else min(largest, 2**53),
        )

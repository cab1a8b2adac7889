"""Pages in a recording: sealed, and told again so that a replay believes the same."""

from __future__ import annotations

import random
from array import array

import pytest

from router.recording.errors import RecordingError
from router.recording.player import Player
from router.recording.records import Paged, Tied
from router.recording.telling import pages_of
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event
from tests.doubles.paged_replica import PAGE_TOKENS, PagedReplica
from tests.doubles.prompts import prompt
from tests.doubles.recordings import packed, reading, recorded


def test_no_page_stands_in_a_recording_as_it_is_and_a_replay_believes_the_same() -> None:
    core, journal = recorded()
    core.members.join(ReplicaSpec("r", "127.0.0.1", 31_000, capacity_tokens=100_000), 0.0)
    core.members.heard("r", Event.PROBE_OK, 0.0)
    replica = PagedReplica(core, "r")
    replica.restart()
    dice, tokens, pages = random.Random(1), list[int](), array("q")
    for turn in range(4):
        tokens += [dice.getrandbits(17) for _ in range(200)]
        ticket = core.arrive(prompt(range(1, turn + 3), key="s"), float(turn))
        pages = replica.compute(tokens)
        core.began(ticket, float(turn))
        assert core.members.tied(ticket, len(tokens), PAGE_TOKENS, pages)
    replica.evict(dice)
    core.arrive(prompt(range(1, 9), key="s"), 9.0)
    data = b"".join(repr(record).encode() for record in journal.records)
    raw = packed(journal.records)
    assert any(isinstance(record, Paged) for record in journal.records)
    ties = [record for record in journal.records if isinstance(record, Tied)]
    # Of each prompt only what is new is told.
    assert [len(record.pages) // 8 for record in ties] == [12, 13, 12, 13]
    for page in pages:
        for shown in (page.to_bytes(8, "little", signed=True), str(page).encode()):
            assert shown not in data
            assert shown not in raw
    player = Player(reading(raw).header)
    assert list(player.play(reading(raw))) == []
    assert player.core.beliefs.pages("r") == core.beliefs.pages("r") > 0
    assert len(player.core.beliefs.ties) == 1


def test_pages_that_are_not_whole_are_damage() -> None:
    with pytest.raises(RecordingError, match="not whole"):
        pages_of(b"1234567")

"""Open loop: requests come at their recorded times, whatever is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sim.scenario.model import WorkloadPace, WorkloadSpec
from sim.workload.play.building import build, load, places_of
from sim.workload.play.turns import TurnKind
from tests.doubles.played import BLOCK, Drawn, Row, play_all, workload_of
from tests.unit.agent_workload.trace_examples import EXAMPLES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.played import Sent

OPEN = WorkloadSpec(pace=WorkloadPace.OPEN)


def opened(name: str, folder: Path, *, rate_factor: float = 1.0) -> list[Sent]:
    file, data = EXAMPLES[name]
    (folder / file).write_bytes(data)
    spec = WorkloadSpec(trace=str(folder / file), pace=WorkloadPace.OPEN, rate_factor=rate_factor)
    play = build(spec, places_of(spec, load(spec, 1), page_tokens=64), n_lanes=1, seed=1)
    return list(play_all(play, lambda _: 1_000.0, page_tokens=64))


@pytest.mark.parametrize("rate_factor", [1.0, 4.0])
def test_mooncake_times(rate_factor: float, tmp_path: Path) -> None:
    sent = opened("mooncake", tmp_path, rate_factor=rate_factor)
    times = [one.at_s * rate_factor for one in sent]
    assert times == pytest.approx([0.0, 0.5, 0.5, 60.5])
    assert [one.turn.prompt_tokens for one in sent] == [1_000, 2_000, 600, 100]
    assert len({one.turn.session_key for one in sent}) == 4


def test_mooncake_shares_what_its_blocks_say(tmp_path: Path) -> None:
    first, second, third, last = opened("mooncake", tmp_path)
    assert second.prompt.pages[:8] == first.prompt.pages[:8]
    assert second.prompt.pages[8] not in first.prompt.pages
    assert second.prompt.ceiling_tokens == 512
    assert third.prompt.ceiling_tokens == 599 // 64 * 64
    assert last.prompt.ceiling_tokens == 0
    assert not first.prompt.output_pages


def test_azure_shares_nothing(tmp_path: Path) -> None:
    sent = opened("azure", tmp_path)
    assert [round(one.at_s, 3) for one in sent] == [0.0, 0.052, 1.02]
    assert [len(one.prompt.pages) for one in sent] == [4_808 // 64, 3_180 // 64, 0]
    assert all(one.prompt.ceiling_tokens == 0 for one in sent)
    assert len({page for one in sent for page in one.prompt.pages}) == 75 + 49


def test_a_recording_plays_at_its_times(tmp_path: Path) -> None:
    sent = opened("recording", tmp_path)
    assert [one.at_s for one in sent] == pytest.approx([0.0, 5.0, 6.0, 7.0, 7.5, 15.0])
    kinds = [one.turn.kind for one in sent]
    assert kinds.count(TurnKind.SUB_AGENT) == 2
    assert len({one.turn.session_key for one in sent}) == 3
    first, second, beside, *_ = (one.prompt for one in sent)
    assert second.chain[: len(first.chain)] == first.chain
    assert beside.chain[0] == first.chain[0]


def test_what_was_answered_is_known() -> None:
    rows = [Row(range(4), 3, 10.0), Row(range(40), 3, 10.0), Row(range(40), 3, 10.0)]
    workload = workload_of([Drawn([], name="unused"), Drawn(rows)], has_clock=True)
    play = build(OPEN, places_of(OPEN, workload, page_tokens=16), n_lanes=1, seed=1)
    size = 4 * BLOCK + 3
    first, second, third = play_all(play, lambda _: 1.0)
    assert second.prompt.ceiling_tokens == size // 16 * 16
    assert third.prompt.ceiling_tokens == 40 * BLOCK // 16 * 16
    assert first.prompt.output_pages == second.prompt.pages[size // 16 : (size + 1) // 16]


def test_a_late_answer_adds_nothing_to_what_came_before_it() -> None:
    rows = [Row((0,), 0, 1.0), Row(range(9), 0, 1.0)]
    sessions = [Drawn([Row(range(100, 130), gap_s=0.0), *rows])]
    workload = workload_of(sessions, has_clock=True)
    play = build(OPEN, places_of(OPEN, workload, page_tokens=16), n_lanes=1, seed=1)
    sent = list(play_all(play, lambda _: 50.0))
    assert [one.at_s for one in sent] == pytest.approx([0.0, 1.0, 2.0])
    assert [one.prompt.ceiling_tokens for one in sent] == [0, 0, 16]

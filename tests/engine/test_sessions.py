"""Growing sessions through the router to three real replicas, to one, and to three emulated ones."""

from __future__ import annotations

import asyncio
import urllib.request
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from router.recording.codec import Recording
from router.recording.player import Player
from tests.doubles.engines import FLEET, Member, emulated
from tests.doubles.processes import running
from tests.engine.growing_sessions import (
    N_LANES,
    N_SESSIONS,
    Reported,
    first_turns,
    hit_ratio,
    play,
    sessions,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.engine

SEED = 7
KEPT_RATIO_MIN = 0.98
PREDICTION_ERROR_MAX = 0.01
EMULATED_POINTS_MAX = 0.02


@dataclass
class Runs:
    """What three fleets reported of the same sessions."""

    real: list[Reported]
    one: list[Reported]
    emulated: list[Reported]
    recording: Path


@contextmanager
def router(members: Sequence[Member], *more: str) -> Iterator[str]:
    """The URL of a router in front of these replicas, each without a cached token."""
    named = [word for member in members for word in ("--replica", member.url)]
    for member in members:
        with urllib.request.urlopen(f"{member.url}/flush_cache?timeout=30") as answer:
            assert answer.status == 200
    with running("serve", "--port", "0", "--admin-port", "0", *named, *more) as door:
        yield door.url


@pytest.fixture(scope="module")
def runs(engines: dict[str, Member], tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The sessions played three times; the second time one after the other, in the order of the first."""
    fleet = [engines[role.name] for role in FLEET]
    recording = tmp_path_factory.mktemp("recording") / "sessions.homeport"
    with router(fleet, "--record", str(recording)) as url:
        real = asyncio.run(play(url, sessions(SEED), lanes=N_LANES))
    with router(fleet[:1]) as url:
        one = asyncio.run(play(url, [[report.request for report in real]], lanes=1))
    with emulated(FLEET) as twins, router(list(twins.values())) as url:
        twin = asyncio.run(play(url, sessions(SEED), lanes=N_LANES))
    return Runs(real, one, twin, recording)


def cached(reports: list[Reported]) -> int:
    return sum(report.cached_tokens for report in reports)


def homes(reports: list[Reported]) -> dict[int, Counter[str]]:
    """The replicas that served each session."""
    served: dict[int, Counter[str]] = {}
    for report in reports:
        served.setdefault(report.request.session, Counter())[report.replica_id] += 1
    return served


def test_three_replicas_cache_what_one_would(runs: Runs) -> None:
    """One replica whose pool holds every session is what an infinite cache reports."""
    assert len(runs.real) == len(runs.one)
    assert [r.prompt_tokens for r in runs.real] == [r.prompt_tokens for r in runs.one]
    assert cached(runs.real) >= KEPT_RATIO_MIN * cached(runs.one)
    assert all(len(replicas) == 1 for replicas in homes(runs.real).values())


def test_the_router_knew_what_was_cached(runs: Runs) -> None:
    predicted = sum(report.predicted_tokens for report in runs.real)
    assert abs(predicted - cached(runs.real)) < PREDICTION_ERROR_MAX * cached(runs.real)


def test_an_emulated_fleet_reports_the_same(runs: Runs) -> None:
    """Its tokens have another size, so that shares of the prompts are compared."""
    assert abs(hit_ratio(runs.emulated) - hit_ratio(runs.real)) < EMULATED_POINTS_MAX
    # Speeds are learned, and engines that share two cores are not equally fast: about evenly, not to the last.
    pairs = zip(first_turns(runs.emulated), first_turns(runs.real), strict=True)
    assert all(abs(emulated - real) <= 2 for emulated, real in pairs)
    assert sum(first_turns(runs.real)) == N_SESSIONS


def test_a_fresh_core_decides_as_the_live_one_did(runs: Runs) -> None:
    recording = Recording([runs.recording.read_bytes()])
    player = Player(recording.header)
    assert list(player.play(recording)) == []
    assert player.tally.placed == len(runs.real)
    assert not recording.is_truncated

"""What the router believes of a replica that only reports its cached tokens, once its cache has changed."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import aiohttp

from tests.doubles.engines import API_KEY, MODEL, Role, running_engines
from tests.doubles.processes import emulate, end, running
from tests.doubles.published import DICE, Seen, Talk
from tests.doubles.replica_calls import is_idle, load_when, new_text, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.doubles.engines import Member

PORTS = ("--port", "0", "--admin-port", "0", "--kv-events", "off")
NEAR_RATIO = 0.1
PAGES_TOKENS = 192
"""Three pages: where a prompt ends in one, and what its bytes tell of its tokens, are not known better."""


def is_near(predicted: int, cached: int) -> bool:
    """Whether a belief is right, as far as bytes can tell."""
    return abs(predicted - cached) <= NEAR_RATIO * cached + PAGES_TOKENS


async def test_evictions_are_known_after_one_request_of_each_session(tight: Member) -> None:
    talks, n_evicted, n_surprised = [Talk(new_text(DICE, n_bytes=500)) for _ in range(8)], 0, 0
    name = tight.url.removeprefix("http://")
    with running("serve", *PORTS, "--replica", tight.url, "--replica-api-key", API_KEY) as router:
        seen = Seen(router)
        async with aiohttp.ClientSession(router.url) as http, session(tight) as replica:
            for turn in range(4):
                DICE.shuffle(talks)
                for talk in talks:
                    await load_when(replica, is_idle)
                    predicted, cached = await talk.turn(http, replica, 3_500)
                    n_evicted += turn > 1 and cached < 1_000
                    n_surprised += turn > 1 and not is_near(predicted, cached)
                    before = await seen.metrics()
                    again, cached = await talk.turn(http, replica, 300)
                    assert is_near(again, cached), (turn, predicted, again, cached)
                    assert cached > 1_000
                    after = await seen.metrics()
                    error = "homeport_replica_prediction_error_tokens_total/" + name
                    assert after[error] - before[error] == abs(again - cached)
            # The pool holds few of them: many come back to nothing, and that is known for the most part.
            assert n_evicted > len(talks) / 2
            assert n_surprised <= n_evicted
            reported = after["homeport_replica_cached_tokens_total/" + name]
            assert after[error] < 0.25 * reported


@contextmanager
def _emulated(_: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    process = emulate("--model", MODEL, time_scale=1.0)
    process.wait_ready()
    processes = [process]

    def again() -> None:
        processes[-1].kill()
        end(processes[-1])
        port = int(process.url.rpartition(":")[2])
        processes.append(emulate("--model", MODEL, port=port, time_scale=1.0))
        processes[-1].wait_ready()

    try:
        yield process.url, again
    finally:
        for each in processes:
            end(each)


@contextmanager
def _real(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    with running_engines((Role("again", has_events=False),), folder) as (engine,):

        def again() -> None:
            engine.signal(signal.SIGKILL)
            engine.process.wait()
            assert engine.restart_if_ended()

        yield engine.member.url, again


async def test_a_restart_is_known_after_one_request_of_each_session(
    kind: str, tmp_path: Path
) -> None:
    talks = [Talk(new_text(DICE, n_bytes=1_000)) for _ in range(3)]
    with (
        (_real if kind == "sglang" else _emulated)(tmp_path) as (url, again),
        running("serve", *PORTS, "--replica", url) as router,
    ):
        seen = Seen(router)
        await seen.until(lambda found: found["state"] == "ready")
        async with aiohttp.ClientSession(router.url) as http:
            async with aiohttp.ClientSession(url) as replica:
                for turn in range(3):
                    for talk in talks:
                        predicted, cached = await talk.turn(http, replica, 3_000)
                        assert is_near(predicted, cached) or turn < 2
            await asyncio.to_thread(again)
            await seen.until(lambda found: found["state"] == "ready")
            async with aiohttp.ClientSession(url) as replica:
                for turn in range(2):
                    for talk in talks:
                        predicted, cached = await talk.turn(http, replica, 3_000)
                        assert bool(cached) is bool(turn)
                        assert is_near(predicted, cached) or not turn
        assert (await seen.belief())["source"] == "reported"

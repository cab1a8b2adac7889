"""Watching replicas: what is asked when, what is told, and that none delays another."""

from __future__ import annotations

import socket
from collections import Counter

import pytest

from router.clock import now_s
from router.recording.records import Described, Observed
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event, State
from tests.doubles.probed_engine import Engine, Watched, watched
from tests.doubles.scripted_replica import ScriptedReplica, deaf_port


async def test_a_deaf_and_a_silent_replica_delay_no_other() -> None:
    quick, slow = Engine(), Engine()
    slow.silent = {"/ready", "/v1/loads", "/server_info"}
    seen = Watched(timeout_s=None)
    async with ScriptedReplica(quick.script) as one, ScriptedReplica(slow.script) as two:
        with deaf_port() as deaf:
            for name, port in (("deaf", deaf), ("slow", two.port), ("quick", one.port)):
                seen.join(name, port)
            try:
                await seen.probes.start()
                before = slow.count("/ready")
                await quick.rounds(6)
                # Each of its rounds waits for two intervals: it is asked less often, and the other is not.
                assert slow.count("/ready") - before <= 4
                states = {r.replica_id: r.state for r in seen.core.fleet.replicas()}
                assert states == {"deaf": State.DOWN, "slow": State.DOWN, "quick": State.READY}
            finally:
                await seen.probes.stop()


def between_rounds(asked: list[str]) -> list[Counter[str]]:
    """What was asked from each ``/ready`` to the next."""
    rounds: list[Counter[str]] = []
    for path in asked:
        if path == "/ready":
            rounds.append(Counter())
        if rounds:
            rounds[-1][path] += 1
    return rounds[:-1]


async def test_a_report_that_stands_still_is_asked_for_again_while_requests_of_ours_run() -> None:
    engine = Engine()
    async with watched(engine) as seen:
        replica = seen.core.fleet.get("r")
        assert replica is not None

        async def loads_a_round(n: int) -> set[int]:
            await engine.rounds(2)
            at = len(engine.asked)
            await engine.rounds(n + 1)
            return {counted["/v1/loads"] for counted in between_rounds(engine.asked[at - 1 :])}

        replica.load.inflight = 1
        assert await loads_a_round(3) == {1}
        engine.moves = False
        assert await loads_a_round(3) == {4}
        engine.moves = True
        assert await loads_a_round(3) == {1}
        engine.moves, replica.load.inflight = False, 0
        assert await loads_a_round(3) == {1}


async def test_a_report_tells_its_stamp_and_totals() -> None:
    engine = Engine()
    engine.row |= {"total_prefill_uncached_tokens": 70, "total_prefill_busy_us": 9}
    async with watched(engine) as seen:
        replica = seen.core.fleet.get("r")
        assert replica is not None
        await seen.until(lambda: replica.observed is not None and replica.observed.stamp >= (2,))
        assert replica.observed is not None
        assert (replica.observed.prefill_tokens, replica.observed.prefill_busy_us) == (70, 9)
        assert seen.told(Observed)


@pytest.mark.parametrize(
    "changes", [{"timestamp": -1_000_000}, {"total_prefill_busy_us": 1}], ids=["clock", "total"]
)
async def test_what_goes_back_hints_at_another_process(changes: dict[str, int]) -> None:
    engine = Engine()
    engine.row["total_prefill_busy_us"] = 1_000
    async with watched(engine) as seen:
        await engine.rounds(3)
        assert engine.count("/server_info") == 1
        engine.answers["/server_info"] = b'{"random_seed": 2, "dp_size": 2}'
        engine.row |= changes
        await engine.wait_for(lambda: engine.count("/v1/models") == 2)
        await seen.until(lambda: len(seen.told(Described)) == 2)
        await engine.rounds(3)
        assert engine.count("/server_info") == 2
        assert [info for _, info in seen.infos][-1] == {"random_seed": 2, "dp_size": 2}


async def test_a_replica_that_was_not_ready_is_asked_anew_what_it_is() -> None:
    engine = Engine()
    async with watched(engine) as seen:
        engine.answers["/ready"] = 503
        await seen.until(lambda: seen.heard(Event.PROBE_NOT_READY) > 0)
        assert engine.count("/server_info") == 1
        engine.answers["/ready"] = b""
        await engine.wait_for(lambda: engine.count("/server_info") == 2)
        await engine.rounds(2)
        # It is what it was: nothing is told.
        assert len(seen.told(Described)) == 1


async def test_a_replica_that_was_gone_is_asked_anew_and_told_again() -> None:
    engine = Engine()
    async with watched(engine) as seen:
        replica = seen.core.fleet.get("r")
        assert replica is not None
        port = replica.spec.port
        with socket.create_server(("127.0.0.1", 0)) as listener:
            nobody = listener.getsockname()[1]
        seen.core.members.join(ReplicaSpec("r", "127.0.0.1", nobody), now_s())
        await seen.until(lambda: replica.state is State.DOWN)
        seen.core.members.join(ReplicaSpec("r", "127.0.0.1", port), now_s())
        await engine.wait_for(lambda: engine.count("/server_info") == 2)
        await seen.until(lambda: len(seen.told(Described)) == 2)


async def test_the_health_check_is_asked_at_once_in_doubt_and_beside_the_rounds() -> None:
    engine = Engine()
    engine.row["num_running_reqs"] = 0
    engine.silent = {"/health"}
    async with watched(engine) as seen:
        await engine.rounds(3)
        assert engine.count("/health") == 0  # due in a thousand seconds
        seen.core.members.heard("r", Event.REQUEST_FAILED, now_s())
        await engine.wait_for(lambda: engine.count("/health") == 1)
        await engine.rounds(3)
        assert engine.count("/health") == 1  # it has not answered yet


@pytest.mark.parametrize(
    ("ready", "health", "event"),
    [
        (b"", b"", Event.HEALTH_OK),
        (b"", 503, Event.HEALTH_FAILED),
        (503, b"", Event.HEALTH_OK),
        (503, 503, None),  # it starts or drains, and says so on both
        (b"", 404, None),
    ],
)
async def test_what_a_health_check_tells(
    ready: bytes | int, health: bytes | int, event: Event | None
) -> None:
    engine = Engine()
    engine.row["num_running_reqs"] = 0
    engine.answers |= {"/ready": ready, "/health": health}
    seen = Watched(health_s=0.01)
    async with ScriptedReplica(engine.script) as replica:
        seen.join("r", replica.port)
        try:
            await seen.probes.start()
            if event is not None:
                await seen.until(lambda: seen.heard(event) > 0)
            await engine.wait_for(lambda: engine.count("/health") >= 2)
            kinds = {Event.HEALTH_OK, Event.HEALTH_FAILED} - {event}
            assert not any(seen.heard(kind) for kind in kinds)
        finally:
            await seen.probes.stop()


async def test_who_computes_is_not_asked_for_his_health() -> None:
    engine = Engine()
    seen = Watched(health_s=0.01)
    async with ScriptedReplica(engine.script) as replica:
        seen.join("r", replica.port)
        try:
            await seen.probes.start()
            await engine.rounds(4)
            assert engine.count("/health") == 0
            engine.row["num_running_reqs"] = 0
            await engine.wait_for(lambda: engine.count("/health") > 0)
        finally:
            await seen.probes.stop()


PAGE = b'vllm:num_requests_running{engine="0"} 5\nvllm:num_requests_waiting{engine="0"} 2\n'


@pytest.mark.parametrize("loads", [404, b"<html>", b'{"other": 1}'])
async def test_without_load_reports_the_prometheus_page_is_read(loads: bytes | int) -> None:
    engine = Engine()
    engine.answers |= {"/v1/loads": loads, "/metrics": PAGE, "/ready": 404, "/server_info": 404}
    async with watched(engine) as seen:
        replica = seen.core.fleet.get("r")
        assert replica is not None
        await seen.until(lambda: replica.observed is not None and replica.inflight == 7)
        asked = engine.count("/v1/loads")
        await engine.rounds(3)
        assert engine.count("/v1/loads") == asked
        assert replica.models == ("m",)


async def test_without_either_only_the_load_report_is_asked_for_again() -> None:
    engine = Engine()
    engine.answers |= {"/v1/loads": 404, "/metrics": b"nothing of it"}
    async with watched(engine):
        await engine.rounds(4)
        assert engine.count("/metrics") == 1
        assert engine.count("/v1/loads") >= 4


async def test_a_replica_that_leaves_is_asked_no_more_and_one_that_comes_back_is() -> None:
    engine = Engine()
    async with watched(engine) as seen:
        replica = seen.core.fleet.get("r")
        assert replica is not None
        seen.core.members.leave("r")
        seen.probes.follow_membership()
        asked = len(engine.asked)
        seen.join("r", replica.spec.port)
        await engine.rounds(2)
        assert engine.asked[asked:].count("/server_info") == 1
        assert len(seen.told(Described)) == 2

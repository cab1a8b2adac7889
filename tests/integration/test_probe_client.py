"""The client that asks replicas, against replicas that answer badly, late, in pieces, or not at all."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from router.clock import now_s
from router.control.observe.client import NoAnswer, ReplicaClient, Trouble
from tests.doubles.scripted_replica import Call, ScriptedReplica, chunk, deaf_port, whole

BODY = b'{"loads": [{"num_running_reqs": 3}]}'
LIMIT_S = 10.0
SOON_S = 0.2


def client_of(port: int, *, api_key: str | None = None) -> ReplicaClient:
    return ReplicaClient("127.0.0.1", port, now_s=now_s, api_key=api_key)


async def trouble(
    client: ReplicaClient, *, timeout_s: float = LIMIT_S, bytes_max: int = 1000
) -> str:
    with pytest.raises(NoAnswer) as caught:
        await client.ask(client.request("/v1/loads"), timeout_s=timeout_s, bytes_max=bytes_max)
    return caught.value.trouble


async def sends(call: Call, parts: list[bytes]) -> None:
    for part in parts:
        await call.send(part)
        await asyncio.sleep(0)  # a read of its own for each part, as far as the kernel goes along


ANSWERS = {
    "whole": whole(BODY),
    "chunked": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    + chunk(BODY[:10])
    + chunk(BODY[10:])
    + b"0\r\n\r\n",
    "behind an interim answer": b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + whole(BODY),
}


@pytest.mark.parametrize("data", ANSWERS.values(), ids=ANSWERS.keys())
async def test_an_answer_is_read_wherever_it_is_cut(data: bytes) -> None:
    async def script(call: Call) -> None:
        at = call.number + 1
        await sends(call, [data[:at], data[at:]])

    async with ScriptedReplica(script) as replica:
        client = client_of(replica.port)
        request = client.request("/v1/loads")
        for _ in range(len(data)):
            assert await client.ask(request, timeout_s=LIMIT_S) == (200, BODY)
        assert replica.n_connections == 1
        client.close()


async def test_it_arrives_byte_by_byte() -> None:
    async def script(call: Call) -> None:
        await sends(call, [bytes([byte]) for byte in whole(BODY)])

    async with ScriptedReplica(script) as replica:
        client = client_of(replica.port)
        assert await client.ask(client.request("/x"), timeout_s=LIMIT_S) == (200, BODY)
        client.close()


async def test_what_ends_with_its_connection_is_whole_and_the_next_question_has_a_new_one() -> None:
    async def script(call: Call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + BODY)
        call.close()

    async with ScriptedReplica(script) as replica:
        client = client_of(replica.port)
        for n in (1, 2):
            assert await client.ask(client.request("/x"), timeout_s=LIMIT_S) == (200, BODY)
            assert replica.n_connections == n


@pytest.mark.parametrize("ends", [Call.close, Call.reset], ids=["closed", "reset"])
async def test_a_kept_connection_that_ends_under_a_question_is_no_fault(ends: object) -> None:
    assert callable(ends)

    async def script(call: Call) -> None:
        if call.is_reused:
            ends(call)
        else:
            await call.send(whole(BODY))

    async with ScriptedReplica(script) as replica:
        client = client_of(replica.port)
        for _ in range(3):
            assert await client.ask(client.request("/x"), timeout_s=LIMIT_S) == (200, BODY)
        # Each question but the first was asked on the kept connection, and once more on a new one.
        assert [call.is_reused for call in replica.calls] == [False, True, False, True, False]
        client.close()


@pytest.mark.parametrize("ends", [Call.close, Call.reset], ids=["closed", "reset"])
async def test_a_new_connection_that_ends_at_once_is_broken_and_not_tried_again(
    ends: object,
) -> None:
    assert callable(ends)

    async def script(call: Call) -> None:
        ends(call)
        await call.gone()

    async with ScriptedReplica(script) as replica:
        assert await trouble(client_of(replica.port)) == Trouble.BROKEN
        assert len(replica.calls) == 1


async def test_a_kept_connection_that_ends_in_an_answer_is_broken() -> None:
    async def script(call: Call) -> None:
        data = whole(BODY)
        await call.send(data[:-1] if call.is_reused else data)
        if call.is_reused:
            call.close()

    async with ScriptedReplica(script) as replica:
        client = client_of(replica.port)
        assert (await client.ask(client.request("/x"), timeout_s=LIMIT_S)).status == 200
        assert await trouble(client) == Trouble.BROKEN
        assert len(replica.calls) == 2


FAULTS = {
    "no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n", Trouble.BROKEN),
    "another protocol": (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        Trouble.BROKEN,
    ),
    "two lengths": (
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        Trouble.BROKEN,
    ),
    "a large head": (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000, Trouble.BROKEN),
    "a large length": (b"HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n", Trouble.TOO_LARGE),
    "a large body in chunks": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"x" * 600) * 2,
        Trouble.TOO_LARGE,
    ),
    "a large body to the end": (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5_000, Trouble.TOO_LARGE),
}


@pytest.mark.parametrize(("data", "expected"), FAULTS.values(), ids=FAULTS.keys())
async def test_an_impossible_answer_ends_at_once_and_the_next_question_is_answered(
    data: bytes, expected: Trouble
) -> None:
    async def script(call: Call) -> None:
        await call.send(whole(BODY) if call.number else data)
        if not call.number:
            await call.gone()

    async with ScriptedReplica(script) as replica:
        client = client_of(replica.port)
        assert await trouble(client) == expected
        assert await client.ask(client.request("/x"), timeout_s=LIMIT_S) == (200, BODY)
        client.close()


async def test_silence_and_endless_interim_answers_end_in_time() -> None:
    async def silent(call: Call) -> None:
        await call.gone()

    async def chatty(call: Call) -> None:
        while not call.is_gone:
            await call.send(b"HTTP/1.1 102 Processing\r\n\r\n")
            await asyncio.sleep(0.01)  # its own pace

    for script in (silent, chatty):
        async with ScriptedReplica(script) as replica:
            assert await trouble(client_of(replica.port), timeout_s=SOON_S) == Trouble.TIMEOUT


async def test_nobody_there_is_refused_and_nobody_who_accepts_is_a_time_out() -> None:
    async def script(_: Call) -> None:
        raise AssertionError("it is gone")

    async with ScriptedReplica(script) as replica:
        port = replica.port
    assert await trouble(client_of(port)) == Trouble.REFUSED
    with deaf_port() as deaf:
        assert await trouble(client_of(deaf), timeout_s=SOON_S) == Trouble.TIMEOUT


async def test_a_redirect_and_an_error_are_answers() -> None:
    async def script(call: Call) -> None:
        status = b"302 Found" if call.number == 0 else b"503 Service Unavailable"
        await call.send(whole(b"", status=status, extra=b"location: /elsewhere\r\n"))

    async with ScriptedReplica(script) as replica:
        client = client_of(replica.port)
        statuses = [(await client.ask(client.request("/x"), timeout_s=5)).status for _ in (1, 2)]
        assert statuses == [302, 503]
        assert replica.n_connections == 1
        client.close()


async def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    went = asyncio.Event()

    async def script(call: Call) -> None:
        await call.send(whole(BODY))
        if call.number == 0:
            await call.send(whole(b"poison"))
            await call.gone()
            went.set()

    async with ScriptedReplica(script) as replica:
        client = client_of(replica.port)
        assert await client.ask(client.request("/x"), timeout_s=LIMIT_S) == (200, BODY)
        await went.wait()
        assert await client.ask(client.request("/x"), timeout_s=LIMIT_S) == (200, BODY)
        assert replica.n_connections == 2
        client.close()


async def test_a_question_that_is_given_up_leaves_no_connection() -> None:
    asked, went = asyncio.Event(), asyncio.Event()

    async def script(call: Call) -> None:
        asked.set()
        await call.gone()
        went.set()

    async with ScriptedReplica(script) as replica:
        client = client_of(replica.port)
        task = asyncio.ensure_future(client.ask(client.request("/x"), timeout_s=LIMIT_S))
        await asked.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await went.wait()


async def test_the_key_is_shown_but_where_none_is_needed() -> None:
    async def script(call: Call) -> None:
        await call.send(whole(b""))

    async with ScriptedReplica(script) as replica:
        client = client_of(replica.port, api_key="k")
        await client.ask(client.request("/server_info"), timeout_s=LIMIT_S)
        await client.ask(client.request("/ready", is_open=True), timeout_s=LIMIT_S)
        assert [call.header("authorization") for call in replica.calls] == ["Bearer k", None]
        assert replica.calls[0].header("host") == f"127.0.0.1:{replica.port}"
        client.close()

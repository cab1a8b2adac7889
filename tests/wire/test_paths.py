"""Paths without a generation, several models, and what is let through: what each side sees."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from router.dialect import DialectOptions, dialects
from router.state.fleet.names import ModelNames
from router.state.fleet.replica import Description
from tests.doubles.door_rig import Rig, front_door
from tests.doubles.raw_client import chat, client_of, post
from tests.doubles.scripted_replica import Call, ScriptedReplica, chunk, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect
    from tests.doubles.raw_client import Answer, RawClient

KIMI, QWEN = "kimi-k2.6", "qwen3"
CHAT = "/v1/chat/completions"
COUNT = "/v1/messages/count_tokens"
CALLS = {
    "/v1/embeddings": {"model": KIMI, "input": "x"},
    "/v1/rerank": {"query": "q", "documents": ["d"]},
    "/v1/score": {"query": "q", "items": ["d"], "label_token_ids": [1]},
    "/v1/tokenize": {"prompt": "x"},
    "/tokenize": {"prompt": "x"},
    "/v1/detokenize": {"tokens": [1]},
    "/detokenize": {"tokens": [1]},
    COUNT: {"model": KIMI, "messages": [{"role": "user", "content": "x"}]},
}
ANTHROPIC = "anthropic-version: 2023-06-01\r\n"


async def named(call: Call) -> None:
    """Answer with what was asked: the path, and the port that heard it."""
    answer = {
        "heard": call.head.split(b"\r\n")[0].decode(),
        "body": call.body.decode("utf-8", "replace"),
    }
    await call.send(whole(json.dumps(answer).encode()))


async def ask(client: RawClient, data: bytes) -> Answer:
    await client.send(data)
    return await client.read()


def get(path: str, *, method: str = "GET", extra: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: h\r\n{extra}\r\n".encode()


def described(rig: Rig, models: Mapping[str, tuple[str, ...]], **adapters: str) -> None:
    for name, served in models.items():
        loaded = (adapters[name],) if name in adapters else ()
        rig.core.members.described(name, Description(models=served, adapters=loaded))


@pytest.mark.parametrize(("path", "body"), CALLS.items(), ids=CALLS)
async def test_a_call_is_forwarded_as_it_came(
    table: Mapping[str, Dialect], path: str, body: dict[str, Any]
) -> None:
    raw = json.dumps(body, indent=1).encode()
    async with (
        ScriptedReplica(named) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        answer = await ask(client, post(raw, path=f"{path}?a=1"))
        heard = json.loads(answer.body)
        assert (answer.status, heard["heard"]) == (200, f"POST {path}?a=1 HTTP/1.1")
        assert heard["body"].encode() == raw
        assert answer.headers["x-homeport-reason"] == "least-load"
        record = await rig.notes.wait_for(1)
        assert (record.is_turn, record.outcome, record.ttft_s) == (False, "done", None)
        assert not rig.core.pins.recent(9)
        refused = await ask(client, post(b"{", path=path))
        assert (refused.status, refused.headers["x-homeport-error"]) == (400, "bad-request")


@pytest.mark.parametrize("path", ["/generate", "/v1/rerank"])
async def test_some_paths_take_another_method(table: Mapping[str, Dialect], path: str) -> None:
    async with (
        ScriptedReplica(named) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        put = post(b'{"text":"x"}', path=path).replace(b"POST", b"PUT", 1)
        assert json.loads((await ask(client, put)).body)["heard"] == f"PUT {path} HTTP/1.1"
        wrong = await ask(client, get(path))
        assert (wrong.status, wrong.headers["allow"]) == (405, "POST, PUT")


async def test_an_unknown_path_is_told_what_is_served(table: Mapping[str, Dialect]) -> None:
    async with (
        front_door(dialects=table, engine_paths=("/api/*",)) as rig,
        client_of(rig.port) as client,
    ):
        answer = await ask(client, post(b"{}", path="/v1/nothing"))
        message = json.loads(answer.body)["error"]["message"]
        for path in (*table, "/v1/models", "/health", "/api/*"):
            assert path in message


async def test_a_count_counts_what_would_be_computed_and_goes_home() -> None:
    table = dialects(DialectOptions())
    billing = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=0a1b2;"}
    system = [billing, {"type": "text", "text": "You are an agent."}]
    body = {"model": "m", "system": system, "messages": [{"role": "user", "content": "x"}]}
    extra = "x-claude-code-session-id: 7ffb1c1a-4b6e-4e0b-9d43-8b6cf1e6a001\r\n"
    async with (
        ScriptedReplica(named) as replica,
        ScriptedReplica(named) as other,
        front_door(replica.port, other.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        turn = await ask(
            client,
            post(json.dumps({**body, "max_tokens": 1}).encode(), path="/v1/messages", extra=extra),
        )
        assert turn.headers["x-homeport-replica"] == "r0"
        for _ in range(3):
            count = await ask(client, post(json.dumps(body).encode(), path=COUNT, extra=extra))
            assert count.headers["x-homeport-replica"] == "r0"
            assert count.headers["x-homeport-reason"] == "home"
            assert "billing" not in json.loads(count.body)["body"]
        [pin] = rig.core.pins.recent(9)
        assert pin.n_requests == 1
        stranger = extra.replace("6a001", "6a002")
        await ask(client, post(json.dumps(body).encode(), path=COUNT, extra=stranger))
        assert len(rig.core.pins.recent(9)) == 1
        refused = await ask(client, post(b"[]", path=COUNT))
        assert json.loads(refused.body)["error"]["type"] == "invalid_request_error"


# Engine paths


async def test_listed_paths_pass_with_any_method_and_content(table: Mapping[str, Dialect]) -> None:
    paths = ("/model_info", "/api/*", "/flush_cache")
    async with (
        ScriptedReplica(named) as replica,
        front_door(replica.port, dialects=table, engine_paths=paths) as rig,
        client_of(rig.port) as client,
    ):
        for method in ("GET", "DELETE", "OPTIONS"):
            answer = await ask(client, get("/model_info?x=%20", method=method))
            assert json.loads(answer.body)["heard"] == f"{method} /model_info?x=%20 HTTP/1.1"
        form = post(b"a=\xff", path="/api/upload").replace(b"application/json", b"text/plain")
        assert (await ask(client, form)).status == 200
        assert (await ask(client, get("/flush_cache"))).status == 200
        await client.send(get("/model_info", method="HEAD"))
        head = await client.read_until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert (await rig.notes.wait_for(6)).dialect == "engine-path"


async def head_only(call: Call) -> None:
    await call.send(b"HTTP/1.1 200 OK\r\ncontent-length: 19\r\n\r\n")


async def test_an_answer_to_head_is_only_a_head(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(head_only) as replica,
        front_door(replica.port, dialects=table, engine_paths=("/x",)) as rig,
        client_of(rig.port) as client,
    ):
        for n in (1, 2):
            await client.send(get("/x", method="HEAD"))
            await client.read_until(b"\r\n\r\n")
            await rig.notes.wait_for(n)
        assert replica.n_connections == 2


@pytest.mark.parametrize(
    "path",
    [
        "/flush_cache",
        "/%66lush_cache",
        "//flush_cache",
        "/v1/../flush_cache",
        "/v1/%2e%2e/flush_cache",
        "/./flush_cache",
        "/Flush_Cache",
        "/abort_request",
        "/update_weights_from_disk",
        "/update_weight_version",
        "/start_profile",
        "/hicache/storage-backend",
        "/server_info",
        "/health",
        "/v1/models",
    ],
)
async def test_no_pattern_reaches_what_is_an_operators(
    table: Mapping[str, Dialect], path: str
) -> None:
    async with (
        ScriptedReplica(named) as replica,
        front_door(replica.port, dialects=table, engine_paths=("/*", "/v1/*")) as rig,
        client_of(rig.port) as client,
    ):
        answer = await ask(client, get(path))
        assert answer.status in (200, 404)
        assert replica.calls == []
        assert (await ask(client, get("/v1/other"))).status == 200


async def test_a_stream_of_any_kind_passes_at_once(table: Mapping[str, Dialect]) -> None:
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    parts = [b": hello\n\n", b"event: x\ndata: 1\n", b"\n"]

    async def script(call: Call) -> None:
        await call.send(head + b"".join(map(chunk, parts)) + b"0\r\n\r\n")

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, engine_paths=("/watch",)) as rig,
        client_of(rig.port) as client,
    ):
        answer = await ask(client, get("/watch"))
        assert (answer.body, answer.is_whole) == (b"".join(parts), True)


# Models


async def test_each_model_has_its_replicas_and_an_unknown_one_is_told() -> None:
    names: dict[str, Any] = {"aliases": {"claude-*": KIMI, "small": QWEN, "vendor:x": QWEN}}
    table = dialects(DialectOptions())
    async with (
        ScriptedReplica(named) as kimi,
        ScriptedReplica(named) as qwen,
        front_door(kimi.port, qwen.port, dialects=table, names=names) as rig,
        client_of(rig.port) as client,
    ):
        described(rig, {"r0": (KIMI,), "r1": (QWEN,)}, r0=f"{KIMI}:tuned")
        sent = [
            (KIMI, "r0", KIMI),
            ("claude-opus-4", "r0", "claude-opus-4"),
            ("tuned", "r0", f"{KIMI}:tuned"),
            (f"{KIMI}:tuned", "r0", f"{KIMI}:tuned"),
            (QWEN, "r1", QWEN),
            ("small", "r1", "small"),
            ("vendor:x", "r1", QWEN),
        ]
        for model, replica, forwarded in sent:
            for path, body in (
                (CHAT, {"messages": [{"role": "user", "content": model}]}),
                ("/v1/completions", {"prompt": model}),
                ("/generate", {"text": model}),
                ("/v1/embeddings", {"input": model}),
            ):
                raw = json.dumps({**body, "model": model, "n": 1}).encode()
                answer = await ask(client, post(raw, path=path))
                assert (answer.status, answer.headers["x-homeport-replica"]) == (200, replica)
                assert json.loads(json.loads(answer.body)["body"]) == {
                    **body,
                    "model": forwarded,
                    "n": 1,
                }
        unknown = await ask(client, post(chat(stream=True).replace(b'"m"', b'"llama"')))
        error = json.loads(unknown.body)["error"]
        assert (unknown.status, unknown.headers["x-homeport-error"]) == (404, "unknown-model")
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        for name in (KIMI, QWEN, "tuned", "small"):
            assert name in error["message"]
        message = {
            "model": "llama",
            "max_tokens": 1,
            "messages": [{"role": "user", "content": "x"}],
        }
        for path in ("/v1/messages", COUNT):
            answer = await ask(client, post(json.dumps(message).encode(), path=path))
            error = json.loads(answer.body)
            assert (answer.status, error["type"]) == (404, "error")
            assert error["error"]["type"] == "not_found_error"


async def test_models_are_listed_for_either_client() -> None:
    names: dict[str, Any] = {"aliases": {"claude-*": KIMI, "fast": "tuned", "gone": "nowhere"}}
    async with (
        front_door(1, dialects=dialects(DialectOptions()), names=names) as rig,
        client_of(rig.port) as client,
    ):
        described(rig, {"r0": (KIMI,)}, r0=f"{KIMI}:tuned")
        listed = json.loads((await ask(client, get("/v1/models"))).body)
        assert [(m["id"], m["root"], m["parent"]) for m in listed["data"]] == [
            (KIMI, KIMI, None),
            ("tuned", f"{KIMI}:tuned", KIMI),
            ("fast", f"{KIMI}:tuned", KIMI),
        ]
        one = await ask(client, get("/v1/models/claude-opus-4"))
        assert json.loads(one.body)["root"] == KIMI
        theirs = json.loads((await ask(client, get("/v1/models?limit=9", extra=ANTHROPIC))).body)
        assert [m["id"] for m in theirs["data"]] == [KIMI, "tuned", "fast"]
        assert (theirs["first_id"], theirs["last_id"], theirs["has_more"]) == (KIMI, "fast", False)
        assert {m["type"] for m in theirs["data"]} == {"model"}
        none = await ask(client, get("/v1/models/llama", extra=ANTHROPIC))
        assert (none.status, json.loads(none.body)["error"]["type"]) == (404, "not_found_error")


async def test_an_adapter_by_another_name_has_its_own_chain() -> None:
    """The dialects ask the same names as the door."""
    async with front_door(1, dialects=dialects(DialectOptions())) as rig:
        described(rig, {"r0": (KIMI,)}, r0=f"{KIMI}:tuned")
        names = ModelNames(rig.core.fleet, aliases={"fast": "tuned"})
        table = dialects(DialectOptions(adapter_of=names.adapter_of))
        chains = {
            model: table[CHAT].read(chat().replace(b'"m"', json.dumps(model).encode()), []).chain[0]
            for model in (KIMI, "tuned", "fast", f"{KIMI}:tuned")
        }
        assert chains["tuned"] == chains["fast"] == chains[f"{KIMI}:tuned"] != chains[KIMI]


async def test_what_keeps_caches_apart_is_forwarded() -> None:
    raw = b'{"prompt":"x","cache_salt":"s","extra_key":"k","routed_dp_rank":1}'
    async with (
        ScriptedReplica(named) as replica,
        front_door(replica.port, dialects=dialects(DialectOptions())) as rig,
        client_of(rig.port) as client,
    ):
        await ask(client, post(raw, path="/v1/completions", extra="X-Data-Parallel-Rank: 2\r\n"))
        assert replica.calls[0].body == raw
        assert replica.calls[0].header("x-data-parallel-rank") == "2"

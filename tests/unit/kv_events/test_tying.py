"""Prompts' tokens are asked of the replica that computed them: once, bounded, and held against its counts."""

from __future__ import annotations

import asyncio
from array import array
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from aiohttp import web

from hashing.pages import page_numbers
from router.clock import now_s
from router.control.events import tying
from router.control.events.question import question
from router.control.events.tying import Tying
from router.dialect.base import Usage
from router.state.cache.feeds import Feeding, Said
from router.state.cache.pages import Change, Kind, Medium
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event
from router.state.history import Outcome
from tests.doubles.core_rig import make_core
from tests.doubles.prompts import prompt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router.core import RouterCore, Ticket

PAGE_TOKENS = 4
IDS = list(range(10))
WAIT_S_MAX = 10.0
CHAT = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}'


class Counts(defaultdict[str, int]):
    """Counts that say when one of them changes."""

    def __init__(self) -> None:
        super().__init__(int)
        self.changed = asyncio.Event()

    def __setitem__(self, key: str, value: int) -> None:
        super().__setitem__(key, value)
        self.changed.set()


class Rig:
    """A replica that tokenises, a core that believes its pages, and what ties them."""

    def __init__(self) -> None:
        self.core: RouterCore = make_core(0)
        self.counts = Counts()
        self.tying = Tying(self.core, counts=self.counts, now_s=now_s, api_key="key-of-the-fleet")
        self.asked: list[dict[str, Any]] = []
        self.answers: list[bytes] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.is_asked = asyncio.Event()

    async def tokenize(self, request: web.Request) -> web.Response:
        assert request.headers["authorization"] == "Bearer key-of-the-fleet"
        self.asked.append(await request.json())
        self.is_asked.set()
        await self.may_answer.wait()
        body = self.answers.pop(0) if self.answers else msgspec.json.encode({"tokens": IDS})
        return web.Response(status=200 if body else 500, body=body)

    def turn(self, key: str, segment: int = 1) -> Ticket:
        """A request whose answer has begun; its pages are published."""
        ticket = self.core.arrive(prompt([segment, segment + 1], key=key), now_s())
        pages = page_numbers(IDS, PAGE_TOKENS)
        change = Change(Kind.STORED, Medium.GPU, None, pages)
        assert self.core.members.paged("r", 0, [change], now_s())
        self.core.began(ticket, now_s())
        return ticket

    def offer(self, key: str, segment: int = 1, body: bytes = CHAT) -> Ticket:
        ticket = self.turn(key, segment)
        self.tying.offer(ticket, "openai-chat", body)
        return ticket

    def is_tied(self, key: str) -> bool:
        pin = self.core.pins.get(key)
        return pin is not None and pin.tie is not None

    async def until(self, outcome: str, n: int = 1) -> None:
        async with asyncio.timeout(WAIT_S_MAX):
            while self.counts[outcome] < n:
                self.counts.changed.clear()
                await self.counts.changed.wait()


@asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    found = Rig()
    app = web.Application()
    app.router.add_post("/v1/tokenize", found.tokenize)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    found.core.members.join(ReplicaSpec("r", "127.0.0.1", port, capacity_tokens=100_000), 0.0)
    found.core.members.heard("r", Event.PROBE_OK, 0.0)
    for said in (Said.BEGUN, Said.WHOLE):
        found.core.members.fed("r", Feeding(said, PAGE_TOKENS), 0.0)
    await found.tying.start()
    try:
        yield found
    finally:
        found.may_answer.set()
        await found.tying.stop()
        await runner.cleanup()


async def test_a_prompt_is_asked_once() -> None:
    async with rig() as it:
        ticket = it.offer("s")
        await it.until("tied")
        assert it.is_tied("s")
        assert it.asked == [{"model": "m", "messages": [{"role": "user", "content": "hello"}]}]
        it.core.finish(ticket, Outcome.DONE, 1.0, usage=Usage(len(IDS), 1, 0))
        assert it.is_tied("s")
        it.offer("s")
        assert it.counts["known"] == 1
        assert len(it.asked) == 1


@pytest.mark.parametrize("counted", [9, 11])
async def test_other_tokens_than_were_counted_tie_nothing(counted: int) -> None:
    async with rig() as it:
        it.may_answer.clear()
        ticket = it.offer("s")
        await it.is_asked.wait()
        it.core.finish(ticket, Outcome.DONE, 1.0, usage=Usage(counted, 1, 0))
        it.may_answer.set()
        await it.until("mismatch")
        assert not it.is_tied("s")


async def test_pages_that_the_replica_does_not_tell_of_tie_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tying, "_EVENTS_S", 0.01)
    async with rig() as it:
        it.answers = [msgspec.json.encode({"tokens": IDS[::-1]})]
        it.offer("s")
        await it.until("unwanted")
        assert not it.is_tied("s")


@pytest.mark.parametrize(
    "answer", [b"", b"{", b'{"tokens": ["a"]}', b'{"tokens": [-1]}', b"[" * 100_000]
)
async def test_what_is_no_answer_ties_nothing_and_the_next_is_asked(answer: bytes) -> None:
    async with rig() as it:
        it.answers = [answer]
        it.offer("s")
        await it.until("failed")
        it.offer("t", segment=5)
        await it.until("tied")
        assert not it.is_tied("s")
        assert it.is_tied("t")


async def test_what_waits_is_bounded_and_the_newest_of_a_session_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tying, "_BYTES_MAX", 3 * len(CHAT))
    async with rig() as it:
        it.may_answer.clear()
        it.offer("first")
        await it.is_asked.wait()  # it waits no more: its body is gone
        for segment in (10, 20):
            it.offer("s", segment)
        assert it.counts["superseded"] == 1
        it.offer("t", 30)
        it.offer("u", 40)
        it.offer("v", 50)
        assert it.counts["dropped"] == 1
        it.may_answer.set()
        await it.until("tied", 4)
        assert [key for key in ("first", "s", "t", "u", "v") if it.is_tied(key)] == [
            "first", "s", "t", "u",
        ]  # fmt: skip
        assert it.tying._n_bytes == 0


async def test_nobody_is_asked_whose_pages_are_not_told() -> None:
    async with rig() as it:
        it.core.members.fed("r", Feeding(Said.LOST, PAGE_TOKENS), 0.0)
        ticket = it.core.arrive(prompt([1, 2], key="s"), now_s())
        it.tying.offer(ticket, "openai-chat", CHAT)
        assert it.tying._n_bytes == 0
        assert it.asked == []


async def test_a_dialect_that_never_fits_is_rarely_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tying, "_EVENTS_S", 0.0)
    async with rig() as it:
        other = msgspec.json.encode({"tokens": IDS[::-1]})
        it.answers = [other] * 30
        for n in range(12):
            it.offer(f"s{n}", segment=100 * n + 1)
        await it.until("unasked", 4)
        assert it.counts["unwanted"] == len(it.asked) == 8


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("sglang-generate", b'{"text":"a"}'),
        ("openai-chat", b"{"),
        ("openai-chat", b"[]"),
        ("openai-chat", b'{"messages":[],"input_ids":[1]}'),
        ("openai-chat", b'{"messages":[],"extra_key":"a"}'),
        ("openai-chat", b'{"messages":[],"cache_salt":7}'),
        ("openai-chat", b"[" * 100_000),
        ("openai-completions", b'{"prompt":["a","b"]}'),
        ("anthropic-messages", b'{"messages":"no"}'),
        ("anthropic-messages", b'{"messages":[{"role":"system","content":"a"}]}'),
        ("anthropic-messages", b'{"messages":[{"role":"user","content":[{"type":"image"}]}]}'),
        ("anthropic-messages", b'{"messages":[],"tools":[{"type":"web_search_20250305"}]}'),
        ("anthropic-messages", b'{"messages":[],"thinking":"yes"}'),
        ("openai-responses", b'{"input":[],"previous_response_id":"r"}'),
        ("openai-responses", b'{"input":[{"type":"item_reference","id":"x"}]}'),
        ("openai-responses", b'{"input":[{"role":"user","content":[{"type":"input_image"}]}]}'),
        ("openai-responses", b'{"input":7}'),
        ("openai-responses", b'{"input":[{"type":"reasoning","summary":[{"text":7}]}]}'),
        ("openai-responses", b'{"input":[{"type":"reasoning","summary":7}]}'),
        ("openai-responses", b'{"input":[],"tools":[{"type":"custom","name":"a","format":7}]}'),
    ],
)
def test_what_cannot_be_asked_for_certain_is_not_asked(dialect: str, body: bytes) -> None:
    assert question(dialect, body) is None


def test_a_salt_is_kept_beside_the_question() -> None:
    asked = question("openai-chat", b'{"messages":[],"cache_salt":"a","stream":true}')
    assert asked is not None
    assert asked.salt == "a"
    assert msgspec.json.decode(asked.body) == {"messages": []}
    assert page_numbers(IDS, 4, "a") != page_numbers(IDS, 4)
    assert page_numbers(IDS, 4, "") == page_numbers(IDS, 4)
    assert page_numbers([], 4) == array("q")

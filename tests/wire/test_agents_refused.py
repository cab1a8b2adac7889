"""What each agent is answered when its request cannot be served: the tables of docs/agents.md."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Final

import pytest

from router.clock import ManualClock
from router.dialect.base import PromptFacts
from router.dialect.clients import agents
from router.edge.bounds.limits import EdgeLimits, HoldLimits, RetryLimits
from router.errors import ClientError, FirstEventTimeout, Refused, UpstreamProtocol
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event
from router.state.history import Outcome
from tests.doubles import agent_requests as sent_by
from tests.doubles.agent_requests import Sent, talk
from tests.doubles.door_rig import Rig, front_door
from tests.doubles.raw_client import Answer, client_of
from tests.doubles.scripted_replica import (
    STREAM_HEAD,
    Call,
    ScriptedReplica,
    chunk,
    events,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from router.dialect.base import Dialect


def codex_on_chat() -> Sent:
    """Codex's headers on an API that every build serves."""
    chat = sent_by.chat_agent(talk(1), "codex_cli_rs/0.99.0 (Debian 12; x86_64) xterm")
    return Sent(chat.path, sent_by.codex(talk(1), "S").headers, chat.body)


AGENTS: Final[dict[str, Sent]] = {
    "claude-code": sent_by.claude_code(talk(1), "11111111-aaaa"),
    "codex": codex_on_chat(),
    "opencode": sent_by.opencode(talk(1), "ses_1"),
    "cline": sent_by.chat_agent(talk(1), "Cline/3.41.0"),
    "sdk": sent_by.chat_agent(talk(1), "OpenAI/Python 2.8.0"),
    "others": sent_by.plain_agent(talk(1), "curl/8.0", stream=True),
}

# Rows of docs/agents.md: what happened -> the status that each agent gets, in the order above.
STATUSES: Final[dict[str, tuple[int, ...]]] = {
    "saturated": (529, 503, 503, 429, 503, 503),
    "full-replica-503": (529, 503, 503, 429, 503, 503),
    "full-replica-429": (529, 503, 429, 429, 429, 429),
    "full-event": (529, 503, 503, 429, 503, 503),
    "no-replica-ready": (529, 503, 503, 429, 503, 503),
    "shutting-down": (529, 503, 503, 429, 503, 503),
    "broken-off": (502, 502, 502, 429, 502, 502),
    "time-out": (504, 504, 504, 429, 504, 504),
}
CASES: Final = [
    (what, agent, status)
    for what, row in STATUSES.items()
    for agent, status in zip(AGENTS, row, strict=True)
]

NOT_HELD: Final = EdgeLimits(
    sweep_s=0.01,
    drain_s=2.0,
    first_event_s=5.0,
    hold=HoldLimits(unretried_s=0.0),
    retry=RetryLimits(backoff_s=0.0),
)
FULL = b'{"message":"The request queue is full.","code":503}'
FULL_EVENT = b'data: {"error":{"message":"The request queue is full.","code":503}}\n\n'
FULL_MESSAGE = (
    b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error",'
    b'"message":"The request queue is full."}}\n\n'
)


def answers(what: str, sent: Sent) -> Callable[[Call], Awaitable[None]]:
    """What the only replica does."""
    is_message = sent.path.startswith(sent_by.MESSAGES)

    async def script(call: Call) -> None:
        if what == "full-replica-503":
            await call.send(whole(FULL, status=b"503 Busy", extra=b"x-engine: e\r\n"))
        elif what == "full-replica-429":
            await call.send(whole(FULL, status=b"429 Too Many Requests"))
        elif what == "full-event":
            await call.send(STREAM_HEAD + chunk(FULL_MESSAGE if is_message else FULL_EVENT))
            await call.gone()
        elif what == "broken-off":
            call.reset()
        else:
            await call.gone()

    return script


@contextlib.contextmanager
def prepared(what: str, rig: Rig) -> Iterator[None]:
    """The fleet in the state in which it refuses."""
    if what == "saturated":
        port = rig.core.fleet.replicas()[0].spec.port
        rig.core.members.join(ReplicaSpec("r0", "127.0.0.1", port, inflight_max=1), 0.0)
        occupant = rig.core.arrive(PromptFacts("openai-chat"), 0.0)
        yield
        rig.core.finish(occupant, Outcome.CLIENT_GONE, 0.0)
        return
    if what == "no-replica-ready":
        rig.core.members.heard("r0", Event.CONNECT_FAILED, 0.0)
    elif what == "shutting-down":
        rig.door._door.is_draining = True  # connected before, asks after
    yield


def told(answer: Answer, sent: Sent) -> str:
    """The code in the error's body; on messages its type."""
    error = json.loads(answer.body)["error"]
    return str(error["type"] if sent.path.startswith(sent_by.MESSAGES) else error["code"])


@pytest.mark.parametrize(("what", "agent", "status"), CASES)
async def test_an_agent_is_refused_with_what_it_comes_back_on(
    table: Mapping[str, Dialect], what: str, agent: str, status: int
) -> None:
    sent, clock = AGENTS[agent], ManualClock()
    async with (
        ScriptedReplica(answers(what, sent)) as replica,
        front_door(replica.port, dialects=table, limits=NOT_HELD, clock=clock) as rig,
        client_of(rig.port) as client,
        contextlib.AsyncExitStack() as stack,
    ):
        stack.enter_context(prepared(what, rig))
        asked = asyncio.get_running_loop().create_task(client.send(sent.raw))
        if what == "time-out":
            await rig.policy.asked.wait()
            clock.advance(6.0)
        await asked
        answer = await client.read()
        assert (answer.status, answer.is_whole) == (status, True)
        assert int(answer.headers["retry-after"]) >= 1
        should_retry = answer.headers.get("x-should-retry")
        assert should_retry == ("true" if agent in ("claude-code", "sdk") else None)
        if agent == "opencode":
            wait_ms = int(answer.headers["retry-after-ms"])
            assert wait_ms <= 1000 * int(answer.headers["retry-after"])
        if what.startswith("full-replica"):
            assert answer.body == FULL
        else:
            assert not {"server_is_overloaded", "slow_down"} & {told(answer, sent)}
        if agent == "claude-code" and status == 529 and not what.startswith("full-replica"):
            assert told(answer, sent) == "overloaded_error"
        replica_now = rig.core.fleet.get("r0")
        assert replica_now is not None
        if what.startswith("full"):
            assert replica_now.state in ("ready", "full")  # being full is no fault of its health
            assert not replica_now.standing.falls(0.0)


@pytest.mark.parametrize("agent", AGENTS)
async def test_the_time_is_that_of_the_real_backlog(
    table: Mapping[str, Dialect], agent: str
) -> None:
    sent = AGENTS[agent]
    async with (
        ScriptedReplica(answers("full-replica-503", sent)) as replica,
        ScriptedReplica(answers("full-replica-503", sent)) as other,
        front_door(replica.port, other.port, dialects=table, limits=NOT_HELD) as rig,
        client_of(rig.port) as client,
    ):
        for replica_id, backlog_s in (("r0", 7.3), ("r1", 90.0)):
            known = rig.core.fleet.get(replica_id)
            assert known is not None
            rig.core.fleet.set_foreign(known, 0, backlog_s)
        await client.send(sent.raw)
        answer = await client.read()
        assert answer.headers["retry-after"] == "8"
        assert answer.headers.get("retry-after-ms") == ("7300" if agent == "opencode" else None)


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_failure_after_the_first_event_is_an_event(
    table: Mapping[str, Dialect], agent: str
) -> None:
    sent = AGENTS[agent]
    begun = events("a", done=False)
    if sent.path.startswith(sent_by.MESSAGES):
        begun = b'event: content_block_start\ndata: {"type":"content_block_start"}\n\n'

    async def script(call: Call) -> None:
        await call.send(STREAM_HEAD + chunk(begun))
        call.close()

    async with (
        ScriptedReplica(script) as replica,
        ScriptedReplica(script) as other,
        front_door(replica.port, other.port, dialects=table, limits=NOT_HELD) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(sent.raw)
        answer = await client.read()
        assert (answer.status, answer.is_whole) == (200, True)
        assert answer.body.startswith(begun)
        assert b'"error"' in answer.body
        assert other.calls == []


@pytest.mark.parametrize(
    ("agent", "status"), list(zip(AGENTS, (429, 503, 429, 429, 429, 429), strict=True))
)
def test_a_tenant_over_its_limit(agent: str, status: int) -> None:
    sent = AGENTS[agent]
    manners = agents.manners_of(lines_of(sent), sent.path.partition("?")[0].encode())
    assert manners.name == agent
    error = Refused("tenant-limit", "too much", http_status=429, retry_after_s=7.5)
    answer = manners.told(error)
    assert (answer.http_status, answer.code, answer.retry_after_s) == (status, "tenant-limit", 7.5)
    fields = manners.fields(answer)
    assert (b"retry-after-ms: 7500" in fields) == (agent == "opencode")
    assert (b"x-should-retry: true" in fields) == (agent in ("claude-code", "sdk"))


def lines_of(sent: Sent) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in sent.headers.items()]


@pytest.mark.parametrize(
    ("headers", "path", "name"),
    [
        ({"user-agent": "Codex-Desktop/1.0"}, "/v1/responses", "codex"),
        ({"originator": "codex_vscode"}, "/v1/responses", "codex"),
        ({"user-agent": "python-httpx/0.28"}, "/v1/responses", "responses"),
        ({"user-agent": "gateway/1", "x-codex-window-id": "T:0"}, "/v1/responses", "codex"),
        ({"user-agent": "OpenAI/Python 2.8.0"}, "/v1/responses", "sdk"),
        (
            {"user-agent": "gateway/1", "x-claude-code-session-id": "S"},
            "/v1/messages",
            "claude-code",
        ),
        ({"user-agent": "AsyncAnthropic/Python 0.72.0"}, "/v1/messages", "sdk"),
        ({"x-stainless-lang": "js", "x-title": "Cline"}, "/v1/chat/completions", "cline"),
        ({"x-stainless-lang": "js", "x-title": "Roo Code"}, "/v1/chat/completions", "sdk"),
        ({"user-agent": "not opencode/1"}, "/v1/chat/completions", "others"),
        ({"user-agent": ""}, "/v1/chat/completions", "others"),
    ],
)
def test_who_is_asking(headers: dict[str, str], path: str, name: str) -> None:
    lines = [(key.encode(), value.encode()) for key, value in headers.items()]
    assert agents.manners_of(lines, path.encode()).name == name
    assert agents.manners_of(lines[::-1], path.encode()).name == name


def test_an_sdk_is_told_a_time_that_it_believes() -> None:
    late = Refused("saturated", "full", retry_after_s=300.0)
    assert agents.SDK.told(late).retry_after_s == 60.0
    assert agents.CLAUDE_CODE.told(late).retry_after_s == 60.0
    assert agents.OTHERS.told(late) is late


def test_what_is_no_refusal_stays_what_it_is() -> None:
    loop = ClientError("loop-detected", "round")
    wrong = ClientError("request-timeout", "slow")
    for manners in (agents.CLAUDE_CODE, agents.CODEX, agents.CLINE, agents.SDK):
        assert manners.told(loop).http_status == 508
        assert manners.told(wrong).http_status == 408
    assert agents.SDK.fields(loop) == b"x-should-retry: false\r\n"
    assert agents.SDK.fields(wrong) == agents.CLINE.fields(loop) == b""


def test_a_refusal_in_a_stream_keeps_the_time_for_the_event_that_tells_it() -> None:
    error = Refused("saturated", "Every replica is full.", retry_after_s=4.2)
    assert agents.CODEX.told(error).retry_after_s == 4.2
    assert agents.CLAUDE_CODE.told(error).http_status == 529
    cut = UpstreamProtocol("stream-cut", "cut")
    assert agents.CODEX.told(cut) is cut
    late = FirstEventTimeout("first-event-timeout", "late")
    assert agents.CLINE.told(late).http_status == 429

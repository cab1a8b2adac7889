"""Which of an agent's requests are one session: conversations in recorded shapes through the core.

Each case is a list of requests in order and, for each, the session it belongs to, by a name of the
test's own: equal names are equal sessions, and a name with a slash is a child of what stands before
its last slash. ``~`` marks an auxiliary request: it belongs to the session and leaves it as it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pytest

from router.core import RouterCore
from router.dialect import FACTORIES, DialectOptions, dialects
from router.policy import registry
from tests.doubles import agent_requests as by
from tests.doubles.agent_requests import Sent, Talk, talk
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import client_of
from tests.doubles.scripted_replica import Call, ScriptedReplica, stream, whole

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from router.dialect.base import Dialect

OTHER: Final = "Write the release notes."
S: Final = "0a1b2c3d-1111-4222-8333-444444444444"
T: Final = "5e6f7a8b-1111-4222-8333-444444444444"
U: Final = "9c0d1e2f-1111-4222-8333-444444444444"
COMPACTED: Final = Talk("Summary of what was done so far: the parser was read.", ["after it"])
AGENT: Final = replace(talk(1, "Look for callers."), system="You search. " + by.RULES)
NESTED: Final = replace(talk(1, "Count the lines."), system="You count. " + by.RULES)


@dataclass(frozen=True)
class Case:
    """Requests with the sessions they belong to; ``source`` is where the key was read."""

    name: str
    source: str
    rows: list[tuple[Sent, str]]
    configured: str | None = None


def grown(make: object, task: str = "The parser test fails. Fix it.", n: int = 3) -> list[Sent]:
    """The turns of one conversation."""
    assert callable(make)
    return [make(talk(turn, task)) for turn in range(n)]


def two(make: object) -> list[tuple[Sent, str]]:
    """Two conversations turn by turn, and a resend of the last request."""
    first, second = grown(make), grown(make, OTHER)
    rows = [row for a, b in zip(first, second, strict=True) for row in ((a, "a"), (b, "b"))]
    return [*rows, (first[-1], "a")]


def claude(turn: int, number: int, **more: object) -> Sent:
    """Claude Code, whose billing line changes each time."""
    return by.claude_code(talk(turn), S, cch=f"{number:05x}", **more)  # type: ignore[arg-type]


def sub(said: Talk, agent: str, parent: str | None = None) -> Sent:
    """A sub-agent of Claude Code."""
    headers = {"x-claude-code-agent-id": agent}
    if parent is not None:
        headers["x-claude-code-parent-agent-id"] = parent
    return by.claude_code(said, S, headers=headers)


def codex_child(said: Talk, kind: str) -> Sent:
    """A sub-agent of Codex, with a thread of its own."""
    headers = {"x-openai-subagent": kind, "x-codex-parent-thread-id": S}
    return by.codex(said, S, thread=U, headers=headers)


def aiperf(header: str) -> list[tuple[Sent, str]]:
    """Two simulated conversations, told by one header."""
    return [
        (by.load_generator(talk(turn), {header: key}), key)
        for turn in range(2)
        for key in ("conv-1", "conv-2")
    ]


CASES: Final = [
    Case(
        "claude code",
        "header",
        [
            (claude(0, 1), "s"),
            (claude(1, 2), "s"),
            (by.claude_code_title(S), "s~"),
            (claude(2, 3, reminder="The todo list is empty."), "s"),
            (claude(2, 4), "s"),  # a resend without the reminder
            (by.claude_code_title(S, "something else"), "s~"),
            (sub(AGENT, "agent-1"), "s/1"),
            (sub(replace(AGENT, task="Look for tests."), "agent-2"), "s/2"),
            (sub(replace(AGENT, steps=[*AGENT.steps, "more"]), "agent-1"), "s/1"),
            (sub(NESTED, "agent-3", "agent-1"), "s/1/3"),
            (claude(3, 5), "s"),
            (by.claude_code(COMPACTED, S), "s"),
        ],
    ),
    Case(
        "claude code without its header",
        "body",
        [
            (claude(0, 1, has_header=False), "s"),
            (claude(1, 2, has_header=False, is_json_id=True), "s"),
            (by.claude_code(talk(0, OTHER), T, has_header=False, is_json_id=True), "t"),
            (claude(2, 3, has_header=False), "s"),
        ],
    ),
    Case("opencode", "header", [
        (by.opencode(talk(0), "ses_1"), "s"),
        (by.opencode(talk(1), "ses_1"), "s"),
        (by.opencode(AGENT, "ses_2", parent="ses_1"), "s/2"),
        (by.opencode(Talk("Title: fix it", system="Titles."), "ses_1"), "s~"),
        (by.opencode(talk(2), "ses_1"), "s"),
        (by.opencode(talk(0, OTHER), "ses_3"), "t"),
        (by.opencode(COMPACTED, "ses_1"), "s"),
    ]),
    Case("kimi cli", "body", [
        (by.kimi_cli(talk(0), "k-1"), "s"),
        (by.kimi_cli(talk(0, OTHER), "k-2"), "t"),
        (by.kimi_cli(talk(1), "k-1"), "s"),
        (by.kimi_cli(COMPACTED, "k-1"), "s"),
    ]),
    Case("goose", "header", [
        (by.goose(talk(turn, task), key), key)
        for turn in range(2)
        for task, key in (("Fix it.", "g-1"), (OTHER, "g-2"))
    ]),
    Case("aider", "chain", two(lambda said: by.plain_agent(said, "litellm/1.80.0"))),
    Case("mini-swe-agent", "chain", two(lambda said: by.plain_agent(said, "OpenAI/Python 2.8.0"))),
    Case("swe-agent", "chain", two(lambda said: by.chat_agent(said, "litellm/1.80.0"))),
    Case("openhands", "chain", two(lambda said: by.chat_agent(said, "AsyncOpenAI/Python 2.8.0"))),
    Case("cline", "chain", two(lambda said: by.chat_agent(said, "Cline/3.41.0"))),
    Case("roo code", "chain", two(by.roo_code)),
    Case("modal", "header", aiperf("modal-session-id")),
    Case("aiperf, x-session-id", "header", aiperf("x-session-id")),
    Case("aiperf, affinity", "header", aiperf("x-session-affinity")),
    Case("aiperf, routing key", "header", aiperf("x-smg-routing-key")),
    Case("aiperf, correlation", "configured-header", aiperf("x-correlation-id"), "X-Correlation-ID"),
    Case("aiperf, dynamo", "header", [
        (by.load_generator(talk(0), {"x-dynamo-session-id": "d-1"}), "s"),
        (by.load_generator(
            AGENT, {"x-dynamo-session-id": "d-2", "x-dynamo-parent-session-id": "d-1"}), "s/2"),
        (by.load_generator(
            talk(1), {"x-dynamo-session-id": "d-1", "x-dynamo-session-final": "true"}), "s"),
    ]),
    Case("codex", "header", [
        (by.codex(talk(0), S), "s"),
        (by.codex(talk(1), S), "s"),
        (codex_child(AGENT, "review"), "s/r"),
        (by.codex(talk(0, OTHER), T), "t"),
        (by.codex(COMPACTED, S, window=1), "s"),  # another window of the same thread
        (by.codex(COMPACTED, S, window=1, names=("session_id",)), "s"),
        (by.codex(COMPACTED, S, window=1, names=()), "s"),
    ]),
]  # fmt: skip


async def answering(call: Call) -> None:
    """A replica that has counted the prompt's tokens."""
    body = json.loads(call.body)
    tokens = max(1, len(call.body) // 4)
    if b"/v1/messages" in call.head:
        usage = f'{{"input_tokens":{tokens},"output_tokens":5}}'.encode()
        await call.send(
            stream(
                b'event: message_start\ndata: {"type":"message_start","message":{"usage":%b}}\n\n'
                b'event: content_block_start\ndata: {"type":"content_block_start","index":0}\n\n'
                b'event: message_stop\ndata: {"type":"message_stop"}\n\n' % usage
            )
        )
        return
    if b"/v1/responses" in call.head:
        counts = f'{{"input_tokens":{tokens},"output_tokens":5,"total_tokens":{tokens + 5}}}'
        done = {"type": "response.completed", "response": {"id": "resp_1", "usage": None}}
        data = json.dumps(done).replace("null", counts).encode()
        await call.send(
            stream(
                b"event: response.output_text.delta\n"
                b'data: {"type":"response.output_text.delta","delta":"x"}\n\n'
                b"event: response.completed\ndata: %b\n\n" % data
            )
        )
        return
    usage = f'"usage":{{"prompt_tokens":{tokens},"completion_tokens":5}}'.encode()
    if body.get("stream"):
        await call.send(
            stream(
                b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
                b'data: {"choices":[],%b}\n\ndata: [DONE]\n\n' % usage
            )
        )
    else:
        await call.send(whole(b'{"choices":[],%b}' % usage))


def home_of(core: RouterCore, key: str) -> tuple[str, int, int]:
    """Where a session lives and where its last prompt ends."""
    pin = core.pins.get(key)
    assert pin is not None
    return pin.home_id, pin.tail, pin.tokens


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_which_requests_are_one_session(case: Case) -> None:
    if case.rows[0][0].path not in {*FACTORIES, f"{by.MESSAGES}?beta=true"}:
        pytest.skip("this API is not served")
    table: Mapping[str, Dialect] = dialects(DialectOptions(session_header=case.configured))

    def make_core(_: object, dice: random.Random) -> RouterCore:
        return RouterCore(registry.make("home"), dice)

    async with (
        ScriptedReplica(answering) as first,
        ScriptedReplica(answering) as second,
        ScriptedReplica(answering) as third,
        front_door(first.port, second.port, third.port, dialects=table, make_core=make_core) as rig,
        client_of(rig.port) as client,
    ):
        keys: dict[str, str] = {}
        for number, (sent, mark) in enumerate(case.rows, 1):
            name = mark.removesuffix("~")
            before = home_of(rig.core, keys[name]) if mark.endswith("~") else None
            await client.send(sent.raw)
            assert (await client.read()).status == 200
            record = await rig.notes.wait_for(number)
            assert record.session_source == case.source or case.name == "codex"
            assert keys.setdefault(name, record.session_key) == record.session_key, mark
            assert len(set(keys.values())) == len(keys), f"{mark} is another session"
            if before is not None:
                assert home_of(rig.core, keys[name]) == before
                continue
            pin = rig.core.pins.get(record.session_key)
            assert pin is not None
            parent = name.rpartition("/")[0]
            assert pin.parent_key == (keys[parent] if parent else None)
            assert number == 1 or record.reason in ("home", "new", "branch")
        moved = rig.core.history.totals
        assert (moved.moves, moved.rehomes) == (0, 0)

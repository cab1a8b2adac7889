"""The synthetic agents: sizes, growth, reproducibility, and shared prefixes as an engine sees them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest

from sim.live.rendering import answer as answers
from sim.live.rendering import pages, template
from sim.live.rendering.anthropic_bodies import MessagesBody, messages_prompt
from sim.live.rendering.bodies import ChatBody, TemplateDefaults, chat_prompt, decode
from sim.live.tally import ceiling_tokens
from sim.workload.agents import AgentProfile, AgentSession, AgentWorkload
from sim.workload.turns import MESSAGES_PATH, Answer, ToolCall
from sim.workload.wire import Agent

if TYPE_CHECKING:
    from sim.workload.turns import AgentRequest, Turn

_ANSWER = Answer("Reading it now.", (ToolCall("call_1", "Read", '{"path": "/src/a.py"}'),))
_BILLING = re.compile(rb'\{"type":"text","text":"x-anthropic-billing-header[^}]*\},')


def _rendered(request: AgentRequest) -> tuple[bytes, answers.Wish]:
    """Prompt bytes and wanted answer, as the emulator reads a body without its billing line."""
    if request.path == MESSAGES_PATH:
        messages = decode(_BILLING.sub(b"", request.body), MessagesBody)
        prompt, ask = messages_prompt(messages, TemplateDefaults()), messages.homeport_emulate
    else:
        chat = decode(request.body, ChatBody)
        prompt, ask = chat_prompt(chat, TemplateDefaults()), chat.homeport_emulate
    assert ask is not None
    assert ask.output_tokens is not None
    return template.render(prompt), answers.Wish(ask.output_tokens, 32_000, ask.tool_call)


def _of_agent(agent: Agent, **profile: object) -> AgentSession:
    workload = AgentWorkload(seed=5, profile=AgentProfile(agents={agent: 1}, **profile))  # type: ignore[arg-type]
    return workload.next_session(0)


def _next(session: AgentSession) -> Turn:
    turn = session.next_turn()
    assert turn is not None
    return turn


def test_equal_seeds_give_equal_bodies() -> None:
    for lane in range(3):
        one, two = (AgentWorkload(seed=9).next_session(lane) for _ in range(2))
        for _ in range(3):
            assert _next(one).request == _next(two).request
            one.answered(_ANSWER)
            two.answered(_ANSWER)


def test_lanes_and_seeds_differ() -> None:
    sessions = [AgentWorkload(seed=seed).next_session(lane) for seed in (1, 2) for lane in (0, 1)]
    assert len({session.key for session in sessions}) == 4


@pytest.mark.parametrize("agent", list(Agent))
def test_each_prompt_continues_the_one_before_and_its_answer(agent: Agent) -> None:
    session = _of_agent(agent, burst_share=0.0)
    before = b""
    while (turn := session.next_turn()) is not None:
        prompt, wish = _rendered(turn.request)
        assert prompt.startswith(before)
        given = answers.compose(wish, prompt_bytes=len(prompt), seed=7, is_thinking=True)
        assert given.call is not None
        call = ToolCall(given.call.call_id, given.call.name, given.call.arguments.decode())
        session.answered(Answer(given.text, (call,)))
        before = prompt + given.raw
    assert len(before) > 60_000


def test_sizes_lie_in_the_stated_ranges() -> None:
    workload = AgentWorkload(seed=2)
    for lane in range(12):
        session = workload.next_session(lane)
        first, _ = _rendered(_next(session).request)
        assert 10_000 <= len(first) / 4 <= 20_500
        session.answered(_ANSWER)
        second, wish = _rendered(_next(session).request)
        assert 300 <= (len(second) - len(first)) / 4 <= 4_000
        assert 100 <= wish.output_tokens <= 900


def test_shared_ratio_is_what_an_infinite_cache_holds() -> None:
    workload = AgentWorkload(seed=4)
    held: set[int] = set()
    hit_tokens = ceiling = total = 0

    def play(session: AgentSession) -> None:
        nonlocal hit_tokens, ceiling, total
        while (turn := session.next_turn()) is not None:
            for child in turn.children:
                assert isinstance(child, AgentSession)
                play(child)
            prompt, wish = _rendered(turn.request)
            ids = pages.page_ids(prompt, 0)
            n_held = next((i for i, page in enumerate(ids) if page not in held), len(ids))
            total += len(prompt) // 4
            hit_tokens += n_held * 64
            ceiling += ceiling_tokens(len(prompt) // 4, turn.request.shared_ratio)
            given = answers.compose(wish, prompt_bytes=len(prompt), seed=total, is_thinking=True)
            held.update(pages.page_ids(prompt + given.raw, 0))
            assert given.call is not None
            call = ToolCall(given.call.call_id, given.call.name, given.call.arguments.decode())
            session.answered(Answer(given.text, (call,)))

    for lane in range(6):
        play(workload.next_session(lane))
    assert abs(hit_tokens - ceiling) / total < 0.003


def test_a_burst_shares_the_parents_tools_and_has_its_own_system_text() -> None:
    session = _of_agent(Agent.CLAUDE_CODE, burst_share=1.0)
    _next(session)
    session.answered(_ANSWER)
    turn = _next(session)
    assert 3 <= len(turn.children) <= 5
    parent, _ = _rendered(turn.request)
    tools_end = parent.index(b"<|im_end|>")
    prompts = []
    for child in turn.children:
        child_turn = child.next_turn()
        assert child_turn is not None
        assert child_turn.children == ()
        prompts.append(_rendered(child_turn.request)[0])
        headers = dict(child_turn.request.headers)
        assert headers["x-claude-code-session-id"] == session.identity.session_id
        assert headers["x-claude-code-agent-id"]
    assert all(prompt.startswith(parent[:tools_end]) for prompt in prompts)
    assert not any(prompt.startswith(parent[: tools_end + 400]) for prompt in prompts)
    assert len({child.key for child in turn.children}) == len(turn.children)


def test_pauses_are_mostly_a_tools() -> None:
    session = _of_agent(Agent.OPENCODE, turns=(300, 300), burst_share=0.0, result_tokens=(1, 2))
    _next(session)
    gaps = []
    for _ in range(299):
        session.answered(_ANSWER)
        gaps.append(_next(session).gap_s)
    assert session.next_turn() is None
    human = [gap for gap in gaps if gap >= 20.0]
    assert all(1.0 <= gap <= 8.0 or 20.0 <= gap <= 90.0 for gap in gaps)
    assert 0.04 < len(human) / len(gaps) < 0.2


def test_an_answer_without_tool_calls_is_followed_by_a_users_message() -> None:
    session = _of_agent(Agent.KIMI_CLI)
    _next(session)
    session.answered(Answer("Done."))
    body = msgspec.json.decode(_next(session).request.body)
    assert [m["role"] for m in body["messages"]][:3] == ["system", "user", "assistant"]
    assert body["messages"][-1]["role"] == "user"

"""A synthetic load of coding agents: sessions that grow turn by turn, pause, and spawn bursts.

Sizes and pauses follow the recorded agent traces in kind, scaled down for a demo: a first prompt
of 10,000 to 20,000 tokens, 500 to 4,000 more a turn, 100 to 900 tokens of output; nine pauses of
ten are a tool's, the tenth a person's. Every draw comes from a named stream of one seed.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sim.rng import stream
from sim.workload.text import Prose
from sim.workload.turns import AgentRequest, Answer, Turn
from sim.workload.wire import (
    Agent,
    ChatAgent,
    ClaudeCode,
    Conversation,
    Head,
    HeadPart,
    Identity,
    random_uuid,
)

if TYPE_CHECKING:
    import random

    from sim.workload.text import Tool

_TOOL_NAMES: Final = [
    "Read",
    "Write",
    "Edit",
    "Bash",
    "Glob",
    "Grep",
    "List",
    "Task",
    "Fetch",
    "Search",
    "Todo",
    "Notebook",
    "Diff",
    "Patch",
    "Test",
    "Format",
    "Build",
    "Rename",
    "Move",
    "Ask",
]


@dataclass(frozen=True, slots=True)
class AgentProfile:
    """Sizes in tokens, pauses in engine seconds, shares as probabilities; ranges are inclusive."""

    tool_tokens: int = 350
    system_tokens: int = 2_500
    task_tokens: tuple[int, int] = (800, 10_000)
    result_tokens: tuple[int, int] = (350, 3_400)
    output_tokens: tuple[int, int] = (100, 900)
    turns: tuple[int, int] = (8, 30)
    tool_gap_s: tuple[float, float] = (1.0, 8.0)
    human_gap_s: tuple[float, float] = (20.0, 90.0)
    human_share: float = 0.1
    burst_share: float = 0.04
    burst_agents: tuple[int, int] = (3, 5)
    child_system_tokens: int = 1_200
    child_task_tokens: tuple[int, int] = (300, 1_500)
    child_turns: tuple[int, int] = (1, 4)
    first_gap_s_max: float = 10.0
    no_usage_share: float = 0.25
    agents: dict[Agent, int] = field(
        default_factory=lambda: {Agent.CLAUDE_CODE: 5, Agent.OPENCODE: 3, Agent.KIMI_CLI: 2}
    )


class AgentWorkload:
    """An endless source of synthetic sessions; equal seeds give equal sessions on each lane."""

    def __init__(self, *, seed: int, profile: AgentProfile | None = None) -> None:
        self.profile = profile or AgentProfile()
        self._seed = seed
        self._played: dict[int, int] = {}
        self._sent_heads: set[bytes] = set()
        rng = stream(seed, "heads")
        self.prose = Prose(rng)
        tools = tuple(self.prose.tool(rng, name, self.profile.tool_tokens) for name in _TOOL_NAMES)
        self._head = Head(tools, self.prose.text(rng, self.profile.system_tokens))
        self._child_head = Head(tools, self.prose.text(rng, self.profile.child_system_tokens))

    def next_session(self, lane: int) -> AgentSession:
        """The next session of ``lane``; it depends on the seed, the lane and how many it had."""
        serial = self._played.get(lane, 0)
        self._played[lane] = serial + 1
        rng = stream(self._seed, f"session/{lane}/{serial}")
        weights = self.profile.agents
        agent = rng.choices(list(weights), weights=list(weights.values()))[0]
        identity = Identity(_session_id(agent, rng))
        return AgentSession(
            workload=self,
            rng=rng,
            agent=agent,
            identity=identity,
            head=self._head,
            shape=Shape(
                n_turns=rng.randint(*self.profile.turns),
                task_tokens=_skewed(rng, self.profile.task_tokens),
                first_gap_s=rng.uniform(0.0, self.profile.first_gap_s_max),
                may_spawn=True,
            ),
        )

    def children(self, parent: AgentSession, rng: random.Random) -> tuple[AgentSession, ...]:
        """A burst of sub-agents of ``parent``: one head among them, a task each."""
        profile = self.profile
        return tuple(
            AgentSession(
                workload=self,
                rng=stream(rng.getrandbits(64), "child"),
                agent=parent.agent,
                identity=Identity(
                    parent.identity.session_id,
                    agent_id=f"{parent.identity.session_id[:12]}-{rng.getrandbits(32):08x}",
                    parent_id="main",
                ),
                head=self._child_head,
                shape=Shape(
                    n_turns=rng.randint(*profile.child_turns),
                    task_tokens=rng.randint(*profile.child_task_tokens),
                    first_gap_s=0.0,
                    may_spawn=False,
                ),
            )
            for _ in range(rng.randint(*profile.burst_agents))
        )

    def known_head_bytes(self, head: tuple[HeadPart, ...]) -> int:
        """Size of the leading parts that some request carried before; remembers them all."""
        known_bytes, is_known, path = 0, True, b""
        for part in head:
            path = hashlib.blake2b(path + part.key, digest_size=16).digest()
            is_known = is_known and path in self._sent_heads
            known_bytes += part.size_bytes if is_known else 0
            self._sent_heads.add(path)
        return known_bytes


@dataclass(frozen=True, slots=True)
class Shape:
    """How long a session lasts and how it starts."""

    n_turns: int
    task_tokens: int
    first_gap_s: float
    may_spawn: bool


class AgentSession:
    """One conversation of an agent or of a sub-agent."""

    def __init__(
        self,
        *,
        workload: AgentWorkload,
        rng: random.Random,
        agent: Agent,
        identity: Identity,
        head: Head,
        shape: Shape,
    ) -> None:
        self.agent = agent
        self.identity = identity
        self._workload = workload
        self._rng = rng
        self._shape = shape
        self._tools = head.tools
        wants_usage = rng.random() >= workload.profile.no_usage_share
        self._conversation = _conversation(agent, identity, head, rng, wants_usage=wants_usage)
        self._conversation.add_user(workload.prose.text(rng, shape.task_tokens))
        self._turn_index = 0
        self._gap_s = shape.first_gap_s
        self._known_bytes: int | None = None  # head and history that this session's past holds

    @property
    def key(self) -> str:
        """The session's id, with the sub-agent's behind a slash."""
        own = self.identity.agent_id
        return self.identity.session_id if own is None else f"{self.identity.session_id}/{own}"

    def next_turn(self) -> Turn | None:
        """The next turn, or None after the last."""
        if self._turn_index >= self._shape.n_turns:
            return None
        self._turn_index += 1
        children: tuple[AgentSession, ...] = ()
        profile = self._workload.profile
        is_grown = self._shape.may_spawn and self._turn_index > 1
        if is_grown and self._rng.random() < profile.burst_share:
            children = self._workload.children(self, self._rng)
        return Turn(self._gap_s, self._request(), children)

    def answered(self, answer: Answer) -> None:
        """Append the answer and what follows it: tool results, or a person's next message."""
        conversation, profile, rng = self._conversation, self._workload.profile, self._rng
        conversation.add_answer(answer)
        self._known_bytes = self._prompt_bytes()
        self._gap_s = rng.uniform(*profile.tool_gap_s)
        size_tokens = _skewed(rng, profile.result_tokens)
        if answer.tool_calls:
            per_call = max(1, size_tokens // len(answer.tool_calls))
            conversation.add_results(
                [(call, self._workload.prose.text(rng, per_call)) for call in answer.tool_calls]
            )
        is_human = rng.random() < profile.human_share
        if is_human:
            self._gap_s = rng.uniform(*profile.human_gap_s)
        if is_human or not answer.tool_calls:
            conversation.add_user(self._workload.prose.words(rng, rng.randint(8, 60)))
        if not answer.tool_calls:
            conversation.add_user(self._workload.prose.text(rng, size_tokens))

    def _request(self) -> AgentRequest:
        conversation, rng = self._conversation, self._rng
        low, high = self._workload.profile.output_tokens
        tool = rng.choice(self._tools)
        emulate = {
            "output_tokens": _skewed(rng, (low, high)),
            "tool_call": {"name": tool.name, "arguments": self._arguments(tool)},
        }
        total_bytes = self._prompt_bytes()
        if self._known_bytes is None:
            self._known_bytes = self._workload.known_head_bytes(conversation.head)
        return AgentRequest(
            path=conversation.path,
            headers=conversation.headers,
            body=conversation.body(emulate),
            shared_ratio=self._known_bytes / total_bytes,
        )

    def _prompt_bytes(self) -> int:
        head_bytes = sum(part.size_bytes for part in self._conversation.head)
        return head_bytes + self._conversation.history_bytes

    def _arguments(self, tool: Tool) -> dict[str, str]:
        name = tool.parameters[0]
        return {name: "/src/" + self._workload.prose.words(self._rng, 2).replace(" ", "/") + ".py"}


def _conversation(
    agent: Agent, identity: Identity, head: Head, rng: random.Random, *, wants_usage: bool
) -> Conversation:
    if agent is Agent.CLAUDE_CODE:
        return ClaudeCode(identity=identity, head=head, rng=rng)
    return ChatAgent(agent=agent, identity=identity, head=head, wants_usage=wants_usage)


def _session_id(agent: Agent, rng: random.Random) -> str:
    if agent is Agent.OPENCODE:
        return f"ses_{rng.getrandbits(104):026x}"
    return random_uuid(rng)


def _skewed(rng: random.Random, bounds: tuple[int, int]) -> int:
    """A whole number in ``bounds``, small ones likelier: uniform in the logarithm."""
    low, high = bounds
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))

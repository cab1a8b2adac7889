"""An agent's loop: which call the next answer makes."""

from __future__ import annotations

from typing import Any

import pytest

from sim.live.rendering.bodies import ChatMessage, Prompt
from sim.live.rendering.tool_loop import next_call


def _tool(
    name: str, properties: dict[str, Any], required: list[str] | None = None
) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required or []}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


_READ = _tool("Read", {"file_path": {"type": "string"}}, ["file_path"])
_BASH = _tool("Bash", {"command": {"type": "string"}}, ["command"])


def _asked(answers: int, tools: list[dict[str, Any]]) -> Prompt:
    """A conversation with so many answers, each with a result and a reminder behind it."""
    messages = [ChatMessage("system", "s"), ChatMessage("user", "go")]
    for number in range(answers):
        messages += [
            ChatMessage("assistant", f"step {number}"),
            ChatMessage("tool", "done", tool_call_id=str(number)),
            ChatMessage("user", "a reminder"),
        ]
    return Prompt(messages, tools)


def test_so_many_answers_in_a_row_call_the_shell_and_the_next_ends_the_loop() -> None:
    calls = [next_call(_asked(answers, [_READ, _BASH]), 2) for answers in range(6)]
    assert [call and call.arguments for call in calls] == [
        {"command": "echo step 1"},
        {"command": "echo step 2"},
        None,
        {"command": "echo step 1"},
        {"command": "echo step 2"},
        None,
    ]
    assert calls[0] is not None
    assert calls[0].name == "Bash"


@pytest.mark.parametrize(
    ("schema", "command"),
    [
        ({"type": "array", "items": {"type": "string"}}, ["sh", "-c", "echo step 1"]),
        ({"type": "array", "items": {"type": "object"}}, [{"command": "echo step 1"}]),
        ({"description": "anything"}, "echo step 1"),
    ],
)
def test_a_command_is_given_as_the_tool_wants_it(schema: dict[str, Any], command: object) -> None:
    call = next_call(_asked(0, [_tool("shell", {"command": schema})]), 1)
    assert call is not None
    assert call.arguments["command"] == command


def test_what_else_a_tool_requires_is_filled_in() -> None:
    properties = {
        "cmd": {"type": "string"},
        "mode": {"enum": ["run", "plan"]},
        "wait": {"type": ["integer", "null"]},
        "why": {"type": "string"},
        "unused": {"type": "string"},
    }
    call = next_call(_asked(0, [_tool("exec", properties, ["mode", "wait", "why", "cmd"])]), 1)
    assert call is not None
    assert call.arguments == {"mode": "run", "wait": 1, "why": "step", "cmd": "echo step 1"}


@pytest.mark.parametrize(
    "tools",
    [[], [_READ], [{"type": "function", "function": {"name": "odd", "parameters": "none"}}]],
)
def test_without_a_tool_that_takes_a_command_nothing_is_called(tools: list[dict[str, Any]]) -> None:
    assert next_call(_asked(0, tools), 3) is None

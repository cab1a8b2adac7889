"""An agent's loop without a model: which tool call the next answer makes, if any.

Agents run a shell in one way or another; the first declared tool that takes a command is called with a
harmless one, so many answers in a row as are wanted. The next answer is text alone, which ends the loop.
Answers are counted over the whole conversation: reminders that agents put behind a tool's result look
like a user's message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sim.live.rendering.bodies import ToolCallAsk

if TYPE_CHECKING:
    from sim.live.rendering.bodies import Prompt

_COMMANDS: Final = ("command", "cmd", "commands", "script")
"""What the parameter that holds a command is called: Claude Code, OpenCode, Codex, Cline, mini-swe-agent."""

_FILLED: Final[dict[str, object]] = {
    "string": "step",
    "number": 1,
    "integer": 1,
    "boolean": False,
    "array": [],
    "object": {},
}


def next_call(prompt: Prompt, tool_turns: int) -> ToolCallAsk | None:
    """The call that goes on with the loop; None where it ends, or where no tool takes a command."""
    n_answers = sum(message.role == "assistant" for message in prompt.messages)
    step = n_answers % (tool_turns + 1) + 1
    if step > tool_turns:
        return None
    for tool in prompt.tools:
        function = tool["function"]
        properties, required = _parameters(function)
        name = next((name for name in _COMMANDS if name in properties), None)
        if name is not None:
            arguments = {
                other: _filled(properties.get(other)) for other in required if other != name
            }
            arguments[name] = _command(properties[name], step)
            return ToolCallAsk(str(function.get("name")), arguments)
    return None


def _parameters(function: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A function's properties, and the names of those it requires."""
    schema = function.get("parameters")
    if not isinstance(schema, dict):
        return {}, []
    properties, required = schema.get("properties"), schema.get("required")
    return (
        properties if isinstance(properties, dict) else {},
        [str(name) for name in required] if isinstance(required, list) else [],
    )


def _command(schema: object, step: int) -> object:
    text = f"echo step {step}"
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind != "array":
        return text
    items = schema.get("items") if isinstance(schema, dict) else None
    is_words = not isinstance(items, dict) or items.get("type") in (None, "string")
    return ["sh", "-c", text] if is_words else [{"command": text}]


def _filled(schema: object) -> object:
    """A value that a schema allows."""
    if not isinstance(schema, dict):
        return _FILLED["string"]
    values = schema.get("enum")
    if isinstance(values, list) and values:
        return values[0]
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    return _FILLED.get(str(kind), _FILLED["string"])

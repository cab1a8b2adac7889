"""``homeport replica``: plan, check and run the engines behind the front door.

Each sub-command is a module that is imported only when it is named.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMMANDS: Final = {
    "plan": (
        "replica.commands.plan",
        "what fits: memory a GPU, tokens, sessions, speeds, warnings",
    ),
    "command": ("replica.commands.command", "the command line and environment of a recipe"),
    "check": ("replica.commands.check", "let the engine's own parser and this machine speak"),
    "run": (
        "replica.commands.run",
        "run its engine: start, warm up, register, watch, restart, drain",
    ),
}
"""Name -> module, whose function of that name takes the arguments and answers the exit code; a line on it."""


def replica(arguments: Sequence[str]) -> int:
    """Run the sub-command that the arguments name; answers the exit code."""
    words = list(arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if words else 2
    found = _COMMANDS.get(words[0])
    if found is None:
        known = ", ".join(_COMMANDS)
        print(f"homeport replica: no command {words[0]!r}; there are: {known}", file=sys.stderr)
        return 2
    run = getattr(import_module(found[0]), words[0])
    return int(run(words[1:]) or 0)


def _usage() -> str:
    rows = [f"  {name:<9} {summary}" for name, (_, summary) in _COMMANDS.items()]
    return "\n".join(
        [
            "homeport replica: plan, check and run the engines behind the front door",
            "",
            "usage: homeport replica COMMAND RECIPE [OPTIONS]   (COMMAND --help for its options)",
            "",
            *rows,
        ]
    )

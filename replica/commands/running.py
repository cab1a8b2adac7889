"""How a sub-command runs: a fault is one line on stderr, exit code 2 for a mistake, 1 for the rest."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.exceptions import TyperException

from replica.errors import ReplicaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SETTINGS: Final = {"help_option_names": ["-h", "--help"]}


def run(name: str, command: Callable[..., None], arguments: Sequence[str]) -> int:
    """Run one command with these arguments; answers the exit code.

    A ``ReplicaError`` is a mistake: its message in one line, its code in brackets, exit code 2.
    """
    app = typer.Typer(
        add_completion=False,
        context_settings=_SETTINGS,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.command()(command)
    program = f"homeport replica {name}"
    try:
        code = app(list(arguments), prog_name=program, standalone_mode=False)
    except typer.Exit as left:
        return left.exit_code
    except TyperException as mistake:
        said = getattr(mistake, "format_message", mistake.__str__)()
        print(f"{program}: {' '.join(said.split())}", file=sys.stderr)
        return 2
    except ReplicaError as fault:
        print(f"{program}: {' '.join(str(fault).split())} [{fault.code}]", file=sys.stderr)
        return 2
    return code if isinstance(code, int) else 0


def show_json(tree: dict[str, Any]) -> None:
    """Print one JSON document."""
    print(json.dumps(tree, indent=2))

"""How a command runs: a mistake is one line on stderr and exit code 2."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import typer
from typer.exceptions import TyperException

if TYPE_CHECKING:
    from collections.abc import Sequence

_SETTINGS: Final = {"help_option_names": ["-h", "--help"]}


def application() -> typer.Typer:
    """An empty application in the manner of all commands."""
    return typer.Typer(
        add_completion=False,
        context_settings=_SETTINGS,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def run(app: typer.Typer, name: str, arguments: Sequence[str]) -> int:
    """Run one typer application; answers the exit code, 2 after a mistake."""
    try:
        code = app(list(arguments), prog_name=f"homeport {name}", standalone_mode=False)
    except typer.Exit as left:
        return left.exit_code
    except TyperException as mistake:
        said = getattr(mistake, "format_message", mistake.__str__)()
        context = getattr(mistake, "ctx", None)
        path = f"homeport {name}" if context is None else context.command_path
        print(f"{path}: {' '.join(said.split())}", file=sys.stderr)
        return 2
    return code if isinstance(code, int) else 0

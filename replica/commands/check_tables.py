"""How a check looks in a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.machine.inspection import Finding
    from replica.setup import Setup

_STYLES: Final = {"ok": "green", "fail": "red", "note": "yellow"}


def show(
    setup: Setup,
    version: str | None,
    findings: Sequence[Finding],
    beware: Sequence[tuple[str, str]],
    changes: Sequence[dict[str, Any]],
) -> None:
    """Print it: what was looked at, what SGLang makes of the arguments, warnings."""
    console = Console(highlight=False)
    recipe = setup.recipe
    chosen = ", ".join((f"variant {recipe.variant}", *(f"option {n}" for n in recipe.options)))
    console.print(Text(f"{recipe.name}, {chosen}, on {setup.tp} x {setup.device}"))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("", "what", "found"):
        table.add_column(name)
    for row in findings:
        words = row.words if row.state == "ok" or row.code is None else f"{row.words} [{row.code}]"
        table.add_row(Text(row.state, style=_STYLES[row.state]), row.what, Text(words))
    console.print(table, end="")
    if changes:
        console.print(Text(f"\nwhat SGLang {version} makes of the arguments", style="bold"))
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in ("field", "asked", "becomes"):
            table.add_column(name)
        for change in changes:
            said = "not said" if change["asked"] is None else json.dumps(change["asked"])
            table.add_row(change["field"], Text(said), Text(json.dumps(change["resolved"])))
        console.print(table, end="")
    for code, words in beware:
        console.print(Text.assemble(("warning ", "yellow"), f"{code}: {words}"))

"""Results as files: one JSON document, and the page that is drawn from it."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import TYPE_CHECKING

from sim.page import render
from sim.scenario.errors import ScenarioError
from sim.scenario.writing import document_of
from sim.workload.traces.errors import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sim.scenario.model import Scenario

    Figures = dict[str, object]


def document(
    scenario: Scenario,
    arguments: Sequence[str],
    *,
    policies: Mapping[str, Figures] | None = None,
    reference: Figures | None = None,
    points: Sequence[Mapping[str, object]] | None = None,
) -> dict[str, object]:
    """All results of one command as plain values; ``arguments`` give them again, behind ``homeport sim``."""
    made: dict[str, object] = {
        "homeport": version("homeport"),
        "scenario": document_of(scenario),
        "seed": scenario.seed,
        "command": arguments[0],
        "arguments": list(arguments),
        "policies": dict(policies or {}),
        "reference": reference,
    }
    return made if points is None else {**made, "points": list(points)}


def check_writable(flag: str, path: Path | None) -> None:
    """Find out now whether a result can be written there later.

    Raises:
        ScenarioError: it cannot.
    """
    if path is None:
        return
    try:
        if path.exists():
            with path.open("ab"):
                return
        path.touch(exist_ok=False)
        path.unlink()
    except (OSError, ValueError) as failure:
        raise _unwritable(flag, path, failure) from failure


def write(made: Mapping[str, object], *, json_file: Path | None, html_file: Path | None) -> None:
    """Write what was asked for.

    Raises:
        ScenarioError: it cannot be written.
    """
    for flag, path in (("--json", json_file), ("--html", html_file)):
        if path is not None:
            try:
                if flag == "--json":
                    text = json.dumps(made, indent=1, allow_nan=False) + "\n"
                else:
                    text = render(made)
                path.write_text(text, encoding="utf-8")
            except (OSError, ValueError) as failure:
                raise _unwritable(flag, path, failure) from failure


def _unwritable(flag: str, path: Path, failure: Exception) -> ScenarioError:
    why = getattr(failure, "strerror", None) or str(failure)
    return ScenarioError(f"{flag} {clean(str(path))}: cannot be written: {why}")

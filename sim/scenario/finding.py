"""The shipped scenarios, found by listing, and scenarios by name or path."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sim.scenario.draft import drafted
from sim.scenario.errors import ScenarioError
from sim.workload.traces.errors import clean, shown

if TYPE_CHECKING:
    from sim.scenario.draft import Draft

_FOLDER: Final = Path(__file__).with_name("shipped")
_SUFFIX: Final = ".toml"


def shipped() -> dict[str, Path]:
    """The files of the shipped scenarios by name, in the order of their names."""
    return {file.stem: file for file in sorted(_FOLDER.glob(f"*{_SUFFIX}"))}


def located(name: str) -> Path:
    """The file that a name or a path means; whatever has a folder or ``.toml`` in it is a path.

    Raises:
        ScenarioError: there is no shipped scenario of this name.
    """
    if name.endswith(_SUFFIX) or "/" in name or "\\" in name:
        return Path(name)
    found = shipped()
    if name not in found:
        near = get_close_matches(name, found, 1)
        guess = f"did you mean {near[0]!r}? " if near else ""
        raise ScenarioError(
            f"no scenario {shown(name)}; {guess}there are: {', '.join(found)}; or give a .toml file"
        )
    return found[name]


def draft_named(name: str) -> Draft:
    """The scenario that a name or path means.

    Raises:
        ScenarioError: there is none, or it cannot be read.
    """
    if not name or "\0" in name:
        raise ScenarioError(f"no scenario {clean(repr(name))}; there are: {', '.join(shipped())}")
    return drafted(located(name))

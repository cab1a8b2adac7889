"""Everything that one test has started: processes with a mark in their environment, and what descends from them.

A process that names itself overwrites its environment, as SGLang's scheduler does: such a one is found
by its parents while they live, and known again afterwards by its number and the time of its start.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "HOMEPORT_TEST_MARK"
_LOOK_S = 0.05


@dataclass(frozen=True)
class Known:
    """One process, told from a later one of the same number by when it started."""

    pid: int
    started: int


@dataclass(frozen=True)
class _Seen:
    parent: int
    started: int
    words: str
    is_marked: bool


def new_mark() -> str:
    """For the environment, as ``NAME``."""
    return uuid4().hex


def marked(mark: str) -> dict[int, str]:
    """Command lines of the living processes that belong to a mark, by process id."""
    seen = _processes(mark)
    return {pid: seen[pid].words for pid in _belonging(seen)}


def known(mark: str) -> set[Known]:
    """The same, to be looked for later."""
    seen = _processes(mark)
    return {Known(pid, seen[pid].started) for pid in _belonging(seen)}


def none_left(mark: str, before: Iterable[Known] = (), *, within_s: float = 10.0) -> dict[int, str]:
    """Those that are still there after a while, those known before too; empty as it should be."""
    until_s = time.monotonic() + within_s
    while True:
        seen = _processes(mark)
        left = {pid: seen[pid].words for pid in _belonging(seen)}
        left |= {
            each.pid: seen[each.pid].words
            for each in before
            if each.pid in seen and seen[each.pid].started == each.started
        }
        if not left or time.monotonic() > until_s:
            return left
        time.sleep(_LOOK_S)


def wait_for(mark: str, count: int, *, within_s: float = 10.0) -> dict[int, str]:
    """The processes that belong to it, once there are so many; fails with those that are."""
    until_s = time.monotonic() + within_s
    while len(found := marked(mark)) < count:
        assert time.monotonic() < until_s, found
        time.sleep(_LOOK_S)
    return found


def _processes(mark: str) -> dict[int, _Seen]:
    """Every living process here."""
    wanted = f"{NAME}={mark}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            behind = (folder / "stat").read_text().rpartition(")")[2].split()
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
            is_marked = wanted in (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if behind[0] != "Z":
            text = words.decode(errors="replace").strip()
            found[int(folder.name)] = _Seen(int(behind[1]), int(behind[19]), text, is_marked)
    return found


def _belonging(seen: dict[int, _Seen]) -> set[int]:
    found = {pid for pid, each in seen.items() if each.is_marked}
    while more := {pid for pid, each in seen.items() if each.parent in found} - found:
        found |= more
    return found

"""Processes that carry a mark in their environment: everything that one test has started, and its children."""

from __future__ import annotations

import time
from pathlib import Path
from uuid import uuid4

NAME = "HOMEPORT_TEST_MARK"
_LOOK_S = 0.05


def new_mark() -> str:
    """For the environment, as ``NAME``."""
    return uuid4().hex


def marked(mark: str) -> dict[int, str]:
    """Command lines of the living processes that carry it, by process id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{NAME}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    found[int(folder.name)] = words.decode(errors="replace").strip()
        except OSError:
            continue
    return found


def none_left(mark: str, *, within_s: float = 10.0) -> dict[int, str]:
    """Those that are still there after a while; empty as it should be."""
    until_s = time.monotonic() + within_s
    while (left := marked(mark)) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    return left


def wait_for(mark: str, count: int, *, within_s: float = 10.0) -> dict[int, str]:
    """The processes that carry it, once there are so many; fails with those that are."""
    until_s = time.monotonic() + within_s
    while len(found := marked(mark)) < count:
        assert time.monotonic() < until_s, found
        time.sleep(_LOOK_S)
    return found

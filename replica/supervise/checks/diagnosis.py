"""Why an engine ended, told from its exit and its last lines. Pure."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Final

from replica.supervise.checks.faults import fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.lifecycle import Fault
    from replica.supervise.engine.process import Exit

_USAGE: Final = 2
_NO_PROGRAM: Final = 2  # ENOENT
_SIGNS: Final = (
    (
        "out-of-memory",
        re.compile(
            r"CUDA out of memory|OutOfMemoryError|Not enough memory\. Please try|"
            r"NCCL.*out of memory|cudaErrorMemoryAllocation|mem_fraction_static.*(?:too small|increase)"
        ),
    ),
    (
        "host-out-of-memory",
        re.compile(
            r"can't allocate memory|Cannot allocate memory|^MemoryError|Not enough host memory"
        ),
    ),
    ("port-taken", re.compile(r"[Aa]ddress already in use|EADDRINUSE")),
    (
        "model-incomplete",
        re.compile(r"SafetensorError|MetadataIncompleteBuffer|HeaderTooLarge|Missing key\(s\) in"),
    ),
    (
        "model-missing",
        re.compile(
            r"RepositoryNotFoundError|LocalEntryNotFoundError|does not appear to have a file named|"
            r"is not a local folder and is not a valid model|Cannot find any model weights|"
            r"Repo id must be in the form"
        ),
    ),
    ("no-permission", re.compile(r"PermissionError|Permission denied")),
)
"""Looked for in this order: lines about memory come before what fell over because of it."""

_ENDS_ITSELF: Final = re.compile(r"kill_process_tree called|Received sigquit from a child process")
"""SGLang kills its whole family, itself included, when one of its processes has failed."""

_EXCEPTION: Final = re.compile(r"(?:^|\s)\w*(?:Error|Exception): \S")


def cause(exit_: Exit, lines: Sequence[str], *, was_ready: bool, oom_killed: bool = False) -> Fault:
    """The fault of an engine that ended and was not asked to.

    ``was_ready``: it had been in use. ``oom_killed``: the kernel killed processes of this container for
    want of memory while it ran.
    """
    if exit_.not_executed is not None:
        code = "no-engine" if exit_.not_executed == _NO_PROGRAM else "no-permission"
        return fault(code, f"its program cannot be executed (error {exit_.not_executed})")
    words = exit_words(exit_.code)
    if oom_killed and exit_.code in (None, -signal.SIGKILL):
        return fault("host-out-of-memory", f"{words}: the kernel was out of memory")
    for code, sign in _SIGNS:
        for line in reversed(lines):
            if sign.search(line):
                return fault(code, f"{words}; it said: {line.strip()[:300]}")
    if exit_.code == _USAGE and not was_ready:
        said = next((line for line in reversed(lines) if "error" in line), "")
        return fault("bad-flags", f"{words}; it said: {said.strip()[:300]}")
    ended = "crashed" if was_ready else "exited-early"
    if exit_.code == -signal.SIGKILL and any(_ENDS_ITSELF.search(line) for line in lines):
        said = next((line for line in reversed(lines) if _EXCEPTION.search(line)), "")
        told = f"; it said: {said.strip()[:300]}" if said else ""
        words = f"one of the engine's processes failed, and it ended itself{told}"
    elif exit_.code is None or exit_.code < 0:
        ended = "killed"
    return fault(ended, words)


def exit_words(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None:
        return "the engine's guardian was killed, and the engine with it"
    if code >= 0:
        return f"the engine ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"the engine was ended by {name}"

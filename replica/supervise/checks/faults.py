"""Every way in which a replica fails: a stable code, what to do, whether another start may help, the exit code.

``docs/replica.md`` has the same table for operators; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from replica.lifecycle import Fault

STOPPED: Final = 0
BROKEN: Final = 1
MISUSED: Final = 2
CANNOT_START: Final = 3
GAVE_UP: Final = 4
CUT: Final = 5
"""Exit codes; 128 and the signal's number where a second signal ended everything at once."""


@dataclass(slots=True, frozen=True)
class Kind:
    """One code: its remedy, and whether a start with nothing changed may succeed."""

    remedy: str
    heals: bool = False


KINDS: Final[dict[str, Kind]] = {
    "no-engine": Kind("install the engine, or correct the recipe's program"),
    "no-permission": Kind("give this user the right, or run as one who has it"),
    "cannot-bind": Kind(
        "give an address of this machine with --host, and a port that may be bound"
    ),
    "port-taken": Kind("end the process that holds it, or choose other ports with --port"),
    "model-missing": Kind("download the model, or correct its path"),
    "model-incomplete": Kind("download the model again until every file is whole"),
    "bad-flags": Kind("run `homeport replica check`, and correct the recipe"),
    "out-of-memory": Kind(
        "run `homeport replica plan`; lower the memory fraction, the context or the requests at once,"
        " or end what else holds memory on this device"
    ),
    "host-out-of-memory": Kind(
        "lower the host tier (HiCache), on a CPU the memory fraction, or give the machine or container more memory"
    ),
    "exited-early": Kind("read the engine's last lines", heals=True),
    "crashed": Kind("read the engine's last lines", heals=True),
    "killed": Kind("find out who sent the signal; the kernel's log tells of memory", heals=True),
    "start-timeout": Kind("look at the engine's last lines; raise --start-timeout", heals=True),
    "warmup-failed": Kind("look at the engine's last lines", heals=True),
    "hung": Kind("nothing, if it happens once; report it to the engine's makers", heals=True),
    "not-ended": Kind("look for a process that waits for a driver (state D); restart the machine"),
}


def fault(code: str, text: str) -> Fault:
    """The fault of this code, with what happened as its text."""
    return Fault(code, text, KINDS[code].heals)


def remedy(code: str) -> str:
    """What a person can do."""
    return KINDS[code].remedy

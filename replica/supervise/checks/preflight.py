"""What can be told before an engine is started: its program, its ports, its model's folder."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from replica.supervise.checks.faults import fault
from replica.supervise.checks.model_folder import model_fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.engines.base import Launch
    from replica.lifecycle import Fault

_LISTENING: Final = "0A"
_MODEL_FLAGS: Final = (
    ("--model-path", "--load-format"),
    ("--speculative-draft-model-path", "--speculative-draft-load-format"),
)
"""Flags of a folder, and those that say how it is loaded."""


def launch_fault(launch: Launch, search_path: str) -> Fault | None:
    """What keeps this engine from starting; None if nothing can be seen. Reads files, and may block.

    ``search_path`` is the ``PATH`` that its program is looked for in.
    """
    return (
        _program_fault(launch.argv[0], search_path)
        or _ports_fault(launch.host, (launch.port, *launch.ports))
        or _models_fault(launch.argv)
    )


def _program_fault(program: str, search_path: str) -> Fault | None:
    if shutil.which(program, path=search_path) is not None:
        return None
    places = (
        [Path(program)]
        if os.sep in program
        else [Path(folder) / program for folder in search_path.split(os.pathsep)]
    )
    for place in places:
        with suppress(OSError):
            if place.is_file():
                return fault("no-permission", f"{place} may not be executed by this user")
    where = "" if os.sep in program else " in PATH"
    return fault("no-engine", f"there is no program {program}{where}")


def _ports_fault(host: str, ports: Sequence[int]) -> Fault | None:
    for port in dict.fromkeys(ports):
        if failure := _bind_failure(host, port):
            number, text = failure
            where = f"{host} port {port}"
            match number:
                case errno.EADDRINUSE:
                    return fault("port-taken", f"{where} is taken{_holder(port)}")
                case errno.EACCES | errno.EPERM:
                    return fault("no-permission", f"{where} may not be bound by this user")
                case _:
                    return fault("cannot-bind", f"{where} cannot be bound: {text}")
    return None


def _bind_failure(host: str, port: int) -> tuple[int | None, str] | None:
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as failure:
        return failure.errno, str(failure.strerror or failure)
    for family, kind, protocol, _, address in places:
        try:
            with socket.socket(family, kind, protocol) as probe:
                # As servers do: connections that linger from the last engine are no hindrance.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                probe.listen(1)
        except OSError as failure:
            return failure.errno, str(failure.strerror or failure)
    return None


def _holder(port: int) -> str:
    """Who listens on a port, as far as this user may know."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError, IndexError, ValueError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if int(words[1].rpartition(":")[2], 16) == port and words[3] == _LISTENING:
                    inodes.add(f"socket:[{words[9]}]")
    for descriptors in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):
            if any(str(link.readlink()) in inodes for link in descriptors.iterdir()):
                command = (descriptors.parent / "cmdline").read_bytes().replace(b"\0", b" ")
                named = command.decode(errors="replace").strip()[:120]
                return f" by process {descriptors.parent.name} ({named})"
    return ""


def _models_fault(argv: Sequence[str]) -> Fault | None:
    for flag, how in _MODEL_FLAGS:
        value = value_of(argv, flag)
        # What is no path is a name that the engine downloads by.
        if value is not None and (value.startswith(("/", ".", "~")) or Path(value).exists()):
            has_weights = value_of(argv, how) != "dummy"
            if found := model_fault(Path(value).expanduser(), has_weights=has_weights):
                return found
    return None


def value_of(argv: Sequence[str], flag: str) -> str | None:
    """The value that a command line gives a flag; the last one wins."""
    found = None
    for index, word in enumerate(argv):
        if word == flag and index + 1 < len(argv):
            found = argv[index + 1]
        elif word.startswith(f"{flag}="):
            found = word.partition("=")[2]
    return found

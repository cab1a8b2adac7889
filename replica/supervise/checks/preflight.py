"""What can be told before an engine is started: its program, its ports, its model's folder."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from replica.errors import ReplicaError
from replica.machine.model_files import is_folder, read_model
from replica.machine.ports import bind_failure, holder
from replica.supervise.checks.faults import fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.engines.base import Launch
    from replica.lifecycle import Fault

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
        or _ports_fault(launch)
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


def _ports_fault(launch: Launch) -> Fault | None:
    publishers = [port for port in launch.ports if port != launch.port]
    # Publishers listen on all addresses, whatever the server's is.
    for host, port in [(launch.host, launch.port), *(("", port) for port in publishers)]:
        failure = bind_failure(host, port)
        if failure is None:
            continue
        where = f"{host or 'any address'} port {port}"
        match failure.errno:
            case errno.EADDRINUSE:
                by = holder(port)
                return fault("port-taken", f"{where} is taken" + (f" by {by}" if by else ""))
            case errno.EACCES | errno.EPERM:
                return fault("no-permission", f"{where} may not be bound by this user")
            case _:
                what = failure.strerror or failure
                return fault("cannot-bind", f"{where} cannot be bound: {what}")
    return None


def _models_fault(argv: Sequence[str]) -> Fault | None:
    for flag, how in _MODEL_FLAGS:
        value = value_of(argv, flag)
        if value is not None and is_folder(value):
            has_weights = value_of(argv, how) != "dummy"
            if found := model_fault(value, has_weights=has_weights):
                return found
    return None


def model_fault(path: str, *, has_weights: bool = True) -> Fault | None:
    """What is wrong with a model's folder; None if an engine can load it as far as can be told.

    ``has_weights`` False: the engine makes dummy weights, only the configuration is needed.
    """
    folder = Path(path).expanduser()
    needed = [folder, folder / "config.json"]
    if has_weights:
        with suppress(OSError):
            needed += sorted(folder.glob("*.safetensors*"))
    for each in needed:
        with suppress(OSError):
            if each.exists() and not os.access(each, os.R_OK):
                return fault("no-permission", f"{each} cannot be read by this user")
    try:
        if has_weights or not (folder / "config.json").is_file():
            read_model(path)
    except ReplicaError as failure:
        return fault(failure.code, str(failure))
    except PermissionError as failure:
        return fault("no-permission", f"{failure.filename} cannot be read by this user")
    except OSError as failure:
        return fault("model-missing", f"{failure.filename or folder}: {failure.strerror}")
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

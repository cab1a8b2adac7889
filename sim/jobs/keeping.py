"""Finished runs kept in a folder, so that an interrupted sweep goes on where it was.

A run is known by a digest of all that its figures follow from: the scenario with seed and point, the
policy, the trace's identity (path, sizes and times of its files), and the code that such a run may reach. To that belong
the simulator and the router's core, but of the policies only its own: who works on one keeps the others' runs.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from router.policy.registry import POLICIES
from sim.jobs.running import Done
from sim.scenario.writing import document_of

if TYPE_CHECKING:
    from sim.jobs.running import Job

_ROOT: Final = Path(__file__).parents[2]
_PACKAGES: Final = ("hashing", "replica", "router", "sim")
_RUNS: Final = "sim.jobs.running"
_REGISTRY: Final = "router.policy.registry"
"""It imports every policy: of these each run's own is followed."""


class Kept:
    """The folder. A file of it that cannot be read counts as absent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Make the folder.

        Raises:
            OSError: it cannot be made or written to.
        """
        for policy in POLICIES:  # before a run: what is edited meanwhile is not what runs
            _code(policy)
        self.folder.mkdir(parents=True, exist_ok=True)
        probe = self.folder / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()

    def find(self, job: Job) -> Done | None:
        """What this run gave, if it is kept."""
        try:
            found = json.loads((self.folder / self._name(job)).read_text())
        except (OSError, ValueError, RecursionError):
            return None
        match found:
            case {"figures": dict(figures), "load_s": int() | float() as load_s} if (
                figures.get("scenario") == job.scenario.name
            ):
                return Done(figures, float(load_s))
        return None

    def keep(self, job: Job, done: Done) -> None:
        """Keep a result; whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        path = self.folder / self._name(job)
        beside = path.with_suffix(f".{os.getpid()}.part")
        try:
            beside.write_text(json.dumps(done._asdict()))
            beside.replace(path)
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)

    def _name(self, job: Job) -> str:
        return f"{digest_of(job)}.json"


def digest_of(job: Job) -> str:
    """Equal where the figures must be equal."""
    parts = [
        document_of(job.scenario),
        job.policy,
        _identity(job.scenario.workload.trace),
        _code(job.policy),
    ]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def _identity(trace: str | None) -> list[tuple[str, int, int]]:
    if trace is None:
        return []
    path = Path(trace)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = [(str(file.absolute()), file.stat()) for file in files if file.is_file()]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


@lru_cache(maxsize=64)
def _code(policy: str) -> str:
    """The version and a digest of every source that a run may reach: the same version may be edited."""
    digest = hashlib.blake2b(version("homeport").encode(), digest_size=16)
    for name in sorted(reached(policy)):
        digest.update(name.encode())
        digest.update(_source(name))
    return digest.hexdigest()


def reached(policy: str) -> set[str]:
    """The modules that a run with this policy imports, whatever they are used for, all of their packages with them."""
    factory = POLICIES.get(policy)
    open_modules = [_RUNS, *([] if factory is None else [factory.__module__])]
    found: set[str] = set()
    while open_modules:
        name = open_modules.pop()
        if name in found:
            continue
        found.add(name)
        open_modules.extend([".".join(name.split(".")[:n]) for n in range(1, name.count(".") + 1)])
        if name != _REGISTRY:
            open_modules.extend(_imported(name))
    return found


@lru_cache(maxsize=1_024)
def _imported(name: str) -> tuple[str, ...]:
    """The modules of ours that one names in its imports."""
    names: list[str] = []
    for node in ast.walk(ast.parse(_source(name))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.append(node.module)
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(one for one in names if one.split(".")[0] in _PACKAGES and _file(one).is_file())


@lru_cache(maxsize=1_024)
def _source(name: str) -> bytes:
    """A module as it was when first looked at, which is about when it was imported."""
    return _file(name).read_bytes()


def _file(name: str) -> Path:
    base = _ROOT.joinpath(*name.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")

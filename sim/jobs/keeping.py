"""Finished runs kept in a folder, so that an interrupted sweep goes on where it was.

A run is known by a digest of all that its figures follow from: the scenario with seed and point, the
policy, the trace's identity (path, sizes and times of its files), and the code of this package.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sim.jobs.running import Done
from sim.scenario.writing import document_of

if TYPE_CHECKING:
    from sim.jobs.running import Job

_ROOT: Final = Path(__file__).parents[2]
_PACKAGES: Final = ("hashing", "replica", "router", "sim")


class Kept:
    """The folder. A file of it that cannot be read counts as absent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Make the folder.

        Raises:
            OSError: it cannot be made or written to.
        """
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
    parts = [document_of(job.scenario), job.policy, _identity(job.scenario.workload.trace), _code()]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def _identity(trace: str | None) -> list[tuple[str, int, int]]:
    if trace is None:
        return []
    path = Path(trace)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = [(str(file.absolute()), file.stat()) for file in files if file.is_file()]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


@lru_cache(maxsize=1)
def _code() -> str:
    """The version and a digest of every source: the same version may be edited."""
    digest = hashlib.blake2b(version("homeport").encode(), digest_size=16)
    for package in _PACKAGES:
        for file in sorted((_ROOT / package).rglob("*.py")):
            digest.update(file.relative_to(_ROOT).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()

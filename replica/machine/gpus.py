"""The GPUs of this machine, as the driver's own tool tells them."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Final

from replica.errors import ReplicaError

_ASK_S_MAX: Final = 30.0
_GPUS_MAX: Final = 1_024
_FIELDS: Final = ("index", "name", "memory.total", "memory.free", "driver_version")


@dataclass(slots=True, frozen=True)
class Card:
    """One GPU; memory in MiB."""

    index: int
    name: str
    total_mib: int
    free_mib: int
    driver: str

    def is_kind(self, name: str) -> bool:
        """Whether it is a GPU of this kind, by its product's name."""
        return re.search(rf"\b{re.escape(name)}\b", self.name, re.IGNORECASE) is not None


def cards() -> list[Card]:
    """All GPUs; none where the tool is missing, hangs or says nothing usable."""
    query = f"--query-gpu={','.join(_FIELDS)}"
    text = _asked(query, "--format=csv,noheader,nounits")
    found = []
    for row in csv.reader(io.StringIO(text), skipinitialspace=True):
        try:
            index, name, total, free, driver = row
            found.append(Card(int(index), name, int(total), int(free), driver))
        except ValueError:
            continue
    return found


def unlinked(indexes: list[int]) -> list[tuple[int, int]]:
    """Pairs of these GPUs that no NVLink joins, by the driver's matrix; none where there is none."""
    rows: dict[int, list[str]] = {}
    for line in _asked("topo", "-m").splitlines():
        words = re.sub(r"\x1b\[[0-9;]*m", "", line).split()
        match = re.fullmatch(r"GPU(\d+)", words[0]) if words else None
        if match and len(words) > 1 and not words[1].startswith("GPU"):
            rows[int(match[1])] = words[1:]
    pairs = [(a, b) for a in indexes for b in indexes if a < b and a in rows and b in rows]
    order = sorted(rows)
    return [
        (a, b)
        for a, b in pairs
        if order.index(b) < len(rows[a]) and not rows[a][order.index(b)].startswith("NV")
    ]


def _asked(*words: str) -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    try:
        ended = subprocess.run(  # noqa: S603  (the driver's tool, with words of our own)
            [tool, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout if ended.returncode == 0 else ""


def gpu_indexes(text: str) -> tuple[int, ...]:
    """The GPUs that a list such as ``0-3,6`` names, in its order.

    Raises:
        ReplicaError: ``bad-value``.
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ReplicaError("bad-value", f"--gpus {text}: give indexes such as 0-3 or 0,2,4-7")
        begin, end = int(first), int(last or first)
        if not begin <= end < _GPUS_MAX:
            raise ReplicaError("bad-value", f"--gpus {text}: {part.strip()} names no GPUs")
        found += range(begin, end + 1)
    if len(set(found)) != len(found):
        raise ReplicaError("bad-value", f"--gpus {text}: a GPU is named twice")
    return tuple(found)

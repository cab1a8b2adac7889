"""Memory of this machine's host, counted as SGLang counts it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from replica.hardware.gpus import GIB

_CGROUP: Final = Path("/sys/fs/cgroup")
_NODES: Final = Path("/sys/devices/system/node")


def total_gib() -> float | None:
    """What the host has in all, or may use in its container; None where the kernel does not say."""
    total = _meminfo("MemTotal")
    limit = _bytes_in(_CGROUP / "memory.max")
    known = [size for size in (total, limit) if size is not None]
    return min(known) / GIB if known else None


def free_cpu_gib() -> float | None:
    """What an engine on the CPU finds free: of one NUMA node, in its container's limits."""
    free = _meminfo("MemAvailable")
    limit, used = (_bytes_in(_CGROUP / f"memory.{name}") for name in ("max", "current"))
    known = [size for size in (free,) if size is not None]
    if limit is not None and used is not None:
        known.append(max(0, limit - used))
    nodes = len(list(_NODES.glob("node[0-9]*"))) or 1
    return min(known) / GIB / nodes if known else None


def _meminfo(key: str) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return None


def _bytes_in(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(path.read_text())  # "max" where there is no limit
    return None

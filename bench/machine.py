"""What the measurements ran on, and CPU time as the kernel's scheduler counts it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sysconfig
from pathlib import Path

import msgspec


class Machine(msgspec.Struct, frozen=True):
    """Facts that a result is worth nothing without."""

    cpu: str
    cores: int
    kernel: str
    python: str
    load_average: float
    versions: dict[str, str]


def machine(*, peers: dict[str, str]) -> Machine:
    """Describe this machine; ``peers`` are versions of what the router is compared with."""
    names = ("homeport", "uvloop", "httptools", "msgspec", "xxhash")
    return Machine(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        kernel=platform.release(),
        python=f"{platform.python_version()} ({_python_build()})",
        load_average=os.getloadavg()[0],
        versions={name: importlib.metadata.version(name) for name in names} | peers,
    )


def cpu_ns(pid: int) -> int:
    """CPU time of all living threads of a process, in nanoseconds; 0 for process 0.

    The first field of ``schedstat``: user and system time on a CPU. ``/proc/PID/stat`` counts in
    ticks of 10 ms, too coarse for some 20 us a request.
    """
    if not pid:
        return 0
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(path.read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread that ended just now
    return total


def tree_cpu_ns(pid: int) -> int:
    """The same of a process and of those that it started and that live."""
    return sum(map(cpu_ns, (pid, *_children(pid))))


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children") if pid else ():
        found += map(int, path.read_text().split())
    return found


def _python_build() -> str:
    """How the interpreter was compiled; profile-guided builds run Python code markedly faster."""
    arguments = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    return "optimized build" if "--enable-optimizations" in arguments else "built without PGO"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()

"""Metrics of several workers as one router's: texts in Prometheus' format, added up.

Counters and histograms are sums. Of a gauge the answering worker's own counts, unless it is one of what each
worker has for itself. Only texts that a router made are read: one sample a line, no timestamps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

SUMMED: Final = frozenset(
    (
        "homeport_held_requests",
        "homeport_tenant_inflight",
    )
)
"""Gauges that add up; what replicas have in flight is told between workers, so each knows all of it."""

_ADDED: Final = ("counter", "histogram")
_OF_ALL: Final = frozenset(("homeport_workers_died_total",))
"""Counted once, for all workers."""


def summed(own: bytes, others: Iterable[bytes]) -> bytes:
    """One text for all: ``own`` with what is to be added of the others."""
    kinds: dict[str, str] = {}
    heads: dict[str, list[str]] = {}
    samples: dict[str, dict[str, float | str]] = {}
    _read(own.decode(), kinds, heads, samples, is_own=True)
    for text in others:
        _read(text.decode(), kinds, heads, samples, is_own=False)
    lines: list[str] = []
    for family, head in heads.items():
        lines += head
        lines += [f"{name} {_shown(value)}" for name, value in samples[family].items()]
    return ("\n".join(lines) + "\n").encode() if lines else b""


def counted(texts: Iterable[bytes]) -> bytes:
    """What workers that are gone leave behind: their counters, added up, and no gauge."""
    whole = summed(b"", texts).decode().splitlines(keepends=True)
    kept: list[str] = []
    is_kept, help_line = False, ""
    for line in whole:
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split()
            is_kept = kind in _ADDED and family not in _OF_ALL
        elif line.startswith("# HELP "):
            help_line = line
            continue
        if is_kept:
            if line.startswith("# TYPE "):
                kept.append(help_line)
            kept.append(line)
    return "".join(kept).encode()


def _read(
    text: str,
    kinds: dict[str, str],
    heads: dict[str, list[str]],
    samples: dict[str, dict[str, float | str]],
    *,
    is_own: bool,
) -> None:
    family, help_line, is_added = "", "", False
    for line in text.splitlines():
        if line.startswith("# HELP "):
            help_line = line
        elif line.startswith("# TYPE "):
            _, _, family, kind = line.split()
            is_added = (kind in _ADDED or family in SUMMED) and family not in _OF_ALL
            if family not in heads and (is_own or is_added):
                kinds[family], heads[family], samples[family] = kind, [help_line, line], {}
        elif line and (is_own or is_added):
            name, _, value = line.rpartition(" ")
            known = samples[family]
            if is_added:
                known[name] = _number(known.get(name, 0.0)) + float(value)
            else:
                known[name] = value


def _number(value: float | str) -> float:
    return value if isinstance(value, float) else float(value)


def _shown(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return repr(value)

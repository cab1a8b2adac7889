"""What is counted of one supervised replica, in plain numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """Since the supervisor started. ``start_s`` and ``warmup_s`` are those of the last start."""

    starts_total: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    beats: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By router and outcome."""
    lines_total: int = 0
    start_s: float | None = None
    warmup_s: float | None = None
    quiet_s: float = 0.0
    """Since the engine was last seen to move, while it is watched."""

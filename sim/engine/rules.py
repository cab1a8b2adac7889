"""How an engine schedules: the choices that SGLang offers as flags, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FCFS: Final = "fcfs"
LONGEST_PREFIX: Final = "lpm"
PRIORITY: Final = "priority"
SHORTEST_PREFILL: Final = "shortest-prefill-first"

ORDERS: Final = (FCFS, LONGEST_PREFIX, PRIORITY, SHORTEST_PREFILL)
"""The orders that are modelled; ``priority`` is fcfs with ``--enable-priority-scheduling``."""

POLICIES: Final = (FCFS, LONGEST_PREFIX, SHORTEST_PREFILL)
"""Those of them that are a ``--schedule-policy``."""

DELAYED_SLOTS_MIN: Final = 8
"""The running limit from which a drafter's prompts wait for several free slots."""


@dataclass(slots=True, frozen=True)
class EngineRules:
    """The scheduling rules of one replica; the defaults are those of SGLang 0.5.23 without a drafter.

    ``is_chunk_mixed``: running requests get a token in every prefill step (``--enable-mixed-chunk``);
    if not, they wait until no prefill is left. What a running request will still generate is
    estimated as a share of what it may, at most ``output_clip_tokens``: the share begins at
    ``output_ratio`` (``SGLANG_INIT_NEW_TOKEN_RATIO`` by ``--schedule-conservativeness``), falls
    evenly over ``decay_steps`` generation steps to ``output_ratio_floor`` of that, and is set anew
    when requests were retracted. While others run, a prompt is let in only if ``min_free_slots`` of
    the running limit are free (``--min-free-slots-delay``); None is SGLang's own choice: 2 to 4 with a
    drafter and room for 8 or more, else 1. With the order ``priority`` a running request makes room for
    one whose priority is higher by more than ``preemption_threshold``. After each prefill step, ``prefill_decode_interval``
    generation steps of those that run come before the next (``--prefill-decode-interval``).

    Raises:
        ValueError: the order is unknown, or a number is out of range.
    """

    order: str = FCFS
    is_chunk_mixed: bool = False
    output_ratio: float = 0.7
    output_ratio_floor: float = 0.14
    decay_steps: int = 600
    output_clip_tokens: int = 4_096
    retract_steps: int = 20
    preemption_threshold: int = 10
    min_free_slots: int | None = 1
    prefill_decode_interval: int = 0

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"unknown order {self.order!r}: known are {', '.join(ORDERS)}")
        if not (0.0 <= self.output_ratio <= 1.0 and 0.0 <= self.output_ratio_floor <= 1.0):
            raise ValueError(
                f"output_ratio {self.output_ratio} and output_ratio_floor "
                f"{self.output_ratio_floor}: each is from 0 to 1"
            )
        if self.decay_steps < 1 or self.output_clip_tokens < 1 or self.retract_steps < 0:
            raise ValueError(
                f"decay_steps {self.decay_steps} and output_clip_tokens {self.output_clip_tokens} "
                f"are at least 1, retract_steps {self.retract_steps} at least 0"
            )
        if self.prefill_decode_interval < 0:
            raise ValueError(
                f"prefill_decode_interval {self.prefill_decode_interval}: 0 for none, or more"
            )
        if self.min_free_slots is not None and self.min_free_slots < 1:
            raise ValueError(f"min_free_slots {self.min_free_slots}: at least 1, which is no limit")

    def free_slots_for(self, max_running_requests: int, *, has_draft: bool) -> int:
        """Slots that must be free for a prompt to be let in (``resolve_min_free_slots``)."""
        if self.min_free_slots is not None:
            return min(self.min_free_slots, max_running_requests)
        if has_draft and max_running_requests >= DELAYED_SLOTS_MIN:
            return min(4, max(2, (max_running_requests + 5) // 6))
        return 1

"""Step times in closed form.

Rows are least-squares fits to kernel times measured by AIConfigurator (SGLang 0.5.14 kernels,
Kimi-K2.6-NVFP4), published in milliseconds with their errors: about 1 to 2 % (prefill), 2 to 4 %
(decode), 2 to 4 % (verify; an estimate from decode tables). The decode row of B200 TP4 with BF16 KV
is our own fit to the same points, which keeps each of them within 20 %: the published one is off by
20.2 % for one sequence of 200,000 tokens. Functions answer **seconds**.

::

    prefill(n, P) = c0 + c1*sqrt(n) + c2*n + c3*n*P + c4*n*n/2   one chunk of n behind P tokens
    step(b, C)    = d0 + d1*sqrt(b) + d2*b + d3*b*C + d4*C       b sequences, mean context C

Range of the fits: n 256 to 16,384 and P to 245,000; decode b to 64, C 1,024 to 256,000; verify b to
32, C 8,192 to 200,000. A whole prompt is the sum of its chunks: one chunk of 100k is out of range.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Final

from replica.hardware.models import KvDtype

if TYPE_CHECKING:
    from collections.abc import Iterable

DRAFTER_STEP_S: Final = 0.0012
"""Cost of the DFlash drafter a verify step: assumed, nothing public was measured."""

HOST_STEP_S: Final = 0.000_83
"""Scheduler, sampling and launch gaps a decode or verify step, which kernel tables lack.

With it the engine model, prefills of the other requests included, answers the TPOT that InferenceX
measured at B200 TP4, 8k in, 1k out, concurrency 8; tested on the other concurrencies.
"""


@dataclass(slots=True, frozen=True)
class PrefillCoefficients:
    """Coefficients in ms: constant, sqrt(n), n, n*P, n*n/2."""

    c0: float
    c1: float
    c2: float
    c3: float
    c4: float


@dataclass(slots=True, frozen=True)
class StepCoefficients:
    """Coefficients in ms: constant, sqrt(b), b, b*C, C."""

    d0: float
    d1: float
    d2: float
    d3: float
    d4: float

    def step_s(self, batch: int, context_tokens: float) -> float:
        """Seconds of one step of ``batch`` sequences (at least 1) of this mean context."""
        return self.steps_s(batch, context_tokens, context_tokens)[0]

    def steps_s(
        self, batch: int, context_tokens: float, later_tokens: float
    ) -> tuple[float, float]:
        """The same of two steps of one batch, which differ in their context."""
        fixed = self.d0 + self.d1 * sqrt(batch) + self.d2 * batch
        attended = self.d3 * batch
        d4 = self.d4
        return (
            1e-3 * (fixed + attended * context_tokens + d4 * context_tokens),
            1e-3 * (fixed + attended * later_tokens + d4 * later_tokens),
        )


@dataclass(slots=True, frozen=True)
class StepTimes:
    """Step times of one (GPU, tensor parallelism, KV dtype)."""

    prefill: PrefillCoefficients
    decode: StepCoefficients
    verify: StepCoefficients
    drafter_step_s: float = DRAFTER_STEP_S
    host_step_s: float = HOST_STEP_S

    def prefill_s(self, new_tokens: int, cached_tokens: int) -> float:
        """Seconds of one chunk of ``new_tokens`` behind ``cached_tokens``; 0 for no token."""
        if not new_tokens:
            return 0.0
        row = self.prefill
        attended = new_tokens * (row.c3 * cached_tokens + row.c4 * new_tokens / 2)
        return 1e-3 * (row.c0 + row.c1 * sqrt(new_tokens) + row.c2 * new_tokens + attended)

    def prefill_batch_s(self, parts: Iterable[tuple[int, int]]) -> float:
        """Seconds of one prefill step that several prompts share, as (new, cached) tokens each.

        The linear and square-root terms see the step's tokens in all, the attention terms each
        prompt for itself. With one part it is the published form.
        """
        new = 0
        attended = 0.0
        row = self.prefill
        for n, cached in parts:
            new += n
            attended += n * (row.c3 * cached + row.c4 * n / 2)
        if not new:
            return 0.0
        return 1e-3 * (row.c0 + row.c1 * sqrt(new) + row.c2 * new + attended)

    def prompt_s(self, new_tokens: int, cached_tokens: int, *, chunk_tokens: int) -> float:
        """Seconds to prefill ``new_tokens`` behind ``cached_tokens``, chunk after chunk."""
        total = 0.0
        for done in range(0, new_tokens, chunk_tokens):
            total += self.prefill_s(min(chunk_tokens, new_tokens - done), cached_tokens + done)
        return total

    def decode_s(
        self, batch: int, context_tokens: float, later_tokens: float
    ) -> tuple[float, float]:
        """Seconds of two plain decode steps of one batch: one token for each sequence."""
        first_s, later_s = self.decode.steps_s(batch, context_tokens, later_tokens)
        host_s = self.host_step_s
        return first_s + host_s, later_s + host_s

    def verify_s(
        self, batch: int, context_tokens: float, later_tokens: float
    ) -> tuple[float, float]:
        """Seconds of two verify steps of one batch of 8 tokens each, with the drafter."""
        first_s, later_s = self.verify.steps_s(batch, context_tokens, later_tokens)
        drafter_s, host_s = self.drafter_step_s, self.host_step_s
        return first_s + drafter_s + host_s, later_s + drafter_s + host_s


def _times(
    prefill: tuple[float, float, float, float, float],
    decode: tuple[float, float, float, float, float],
    verify: tuple[float, float, float, float],
) -> StepTimes:
    v0, v1, v3, v4 = verify  # the linear term in b came out 0 in every fit
    return StepTimes(
        prefill=PrefillCoefficients(*prefill),
        decode=StepCoefficients(*decode),
        verify=StepCoefficients(v0, v1, 0.0, v3, v4),
    )


STEP_TIMES: Final[dict[tuple[str, int, KvDtype], StepTimes]] = {
    ("b200", 4, KvDtype.FP8): _times(
        (15.55, 0.6619, 0.006729, 7.070e-7, 1.198e-6),
        (3.569, 1.691, 0.05846, 8.174e-6, 4.321e-6),
        (5.618, 4.531, 8.161e-6, 2.263e-6),
    ),
    ("b200", 4, KvDtype.BF16): _times(
        (15.36, 0.6737, 0.005884, 9.413e-7, 1.447e-6),
        (3.741, 1.612, 0.07766, 1.755e-5, 7.629e-6),  # our own fit
        (5.547, 4.579, 1.427e-5, 4.637e-6),
    ),
    ("b200", 8, KvDtype.FP8): _times(
        (12.88, 0.2987, 0.01227, 3.460e-7, 1.988e-7),
        (3.807, 1.044, 0.0495, 5.159e-6, 5.715e-6),
        (5.125, 3.054, 6.510e-6, 7.293e-6),
    ),
    ("b200", 8, KvDtype.BF16): _times(
        (12.70, 0.3081, 0.01181, 4.637e-7, 3.304e-7),
        (3.843, 1.014, 0.05915, 1.176e-5, 9.708e-6),
        (5.438, 3.052, 1.259e-5, 6.015e-6),
    ),
    ("b300", 4, KvDtype.FP8): _times(
        (13.70, 0.7629, 0.004987, 5.299e-7, 1.022e-6),
        (3.121, 1.850, 0.04057, 7.891e-6, 3.802e-6),
        (5.260, 4.673, 6.411e-6, 5.188e-6),
    ),
    ("b300", 4, KvDtype.BF16): _times(
        (13.40, 0.7872, 0.003996, 8.515e-7, 1.385e-6),
        (3.338, 1.749, 0.05517, 1.688e-5, 4.964e-6),
        (5.309, 4.691, 1.252e-5, 7.006e-6),
    ),
    ("b300", 8, KvDtype.FP8): _times(
        (11.32, 0.3821, 0.01057, 2.574e-7, 1.641e-7),
        (3.693, 1.012, 0.05245, 5.206e-6, 5.720e-6),
        (4.521, 3.257, 6.070e-6, 7.431e-6),
    ),
    ("b300", 8, KvDtype.BF16): _times(
        (11.23, 0.3885, 0.01025, 4.125e-7, 3.221e-7),
        (3.673, 1.076, 0.04375, 1.191e-5, 7.473e-6),
        (4.792, 3.240, 1.201e-5, 8.128e-6),
    ),
}
"""Published fits by (GPU, tensor parallelism, KV dtype)."""


def step_times(gpu_name: str, tp: int, kv_dtype: KvDtype) -> StepTimes:
    """The fit for this configuration.

    Raises:
        ValueError: nothing was measured for it; the message lists what was.
    """
    times = STEP_TIMES.get((gpu_name, tp, kv_dtype))
    if times is None:
        known = ", ".join(f"{gpu}-tp{n}-{dtype}" for gpu, n, dtype in STEP_TIMES)
        raise ValueError(f"no step times of {gpu_name}-tp{tp}-{kv_dtype}: known are {known}")
    return times

"""What is wrong with a recipe, a plan or a machine: one line for the person, one code for programs."""

from __future__ import annotations

from typing import Final

CODES: Final = (
    "unknown-recipe",
    "bad-recipe",
    "unknown-variant",
    "unknown-option",
    "unknown-flag",
    "flag-renamed",
    "flag-refused",
    "bad-value",
    "unknown-gpu",
    "gpu-unsupported",
    "tp-unsupported",
    "kv-dtype-unsupported",
    "draft-mismatch",
    "does-not-fit",
    "host-memory",
    "model-missing",
    "model-incomplete",
    "port-taken",
    "port-range",
    "no-engine",
    "engine-version",
    "engine-refuses",
    "engine-silent",
    "gpu-missing",
    "gpu-busy",
    "driver-old",
    "disk-short",
)
"""Every code; ``docs/replica.md`` says what each means and what to do."""


class ReplicaError(Exception):
    """One fault, in words that name its cause and its remedy; ``code`` is one of :data:`CODES`."""

    def __init__(self, code: str, message: str) -> None:
        assert code in CODES, code
        super().__init__(message)
        self.code = code

"""Named random streams derived from one seed, so that one part's draws never shift another's."""

from __future__ import annotations

import hashlib
import random


def stream(seed: int, name: str) -> random.Random:
    """A generator that depends on ``seed`` and ``name`` alone; equal arguments, equal draws."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
    return random.Random(int.from_bytes(digest, "big"))  # noqa: S311 - simulation, no secrets

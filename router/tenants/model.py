"""What the tenants file says of one tenant."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAME_WORDS: Final = (
    "has 1 to 64 letters, digits, dots, dashes and underscores, the first a letter or digit"
)


class Priority(StrEnum):
    """How a tenant's requests rank; kept as a fact, nothing acts on it yet."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


@dataclass(slots=True, frozen=True)
class Tenant:
    """One tenant. Limits are None where there is none.

    ``digests`` are those of its keys. ``models`` None allows every model; a name that ends in ``*``
    allows all that begin so. ``other_paths``: it may use the engine's own paths where these are
    passed on at all.
    """

    name: str
    digests: tuple[bytes, ...] = ()
    models: tuple[str, ...] | None = None
    inflight_max: int | None = None
    requests_per_min_max: int | None = None
    prompt_tokens_per_min_max: int | None = None
    priority: Priority = Priority.NORMAL
    other_paths: bool = False

    def allows_model(self, model: str) -> bool:
        """Whether it may ask for a model of this name."""
        models = self.models
        if models is None or model in models:
            return True
        return any(name.endswith("*") and model.startswith(name[:-1]) for name in models)


def scope_of(name: str) -> int:
    """A number of 64 bits that stands for a tenant's name; 0 for none."""
    if not name:
        return 0
    return int.from_bytes(hashlib.sha256(f"homeport-tenant\0{name}".encode()).digest()[:8], "big")

"""What a router is told of a replica, from its launch. Pure."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any, Final

from replica.hardware.profiles import PROFILES

if TYPE_CHECKING:
    from replica.engines.base import Launch
    from replica.hardware.profiles import EngineFacts

_SHORT_TOKENS: Final = 100
"""A warm turn's new tokens: there the constant counts."""


def facts_of(launch: Launch) -> dict[str, Any]:
    """The registration's fields but its address, name and lease; those that are known.

    Its capacity is not among them: the engine itself tells routers what its pools hold, both tiers.
    """
    facts: dict[str, Any] = {
        "profile": launch.profile,
        "inflight_max": launch.inflight_max,
        "api_key": launch.api_key,
    }
    if launch.profile in PROFILES:
        facts["prefill"] = prefill_terms(PROFILES[launch.profile])
    return {name: value for name, value in facts.items() if value is not None}


def prefill_terms(profile: EngineFacts) -> dict[str, float]:
    """A profile's seconds of prefill in the four terms that a registration has.

    ``fixed + linear n + cross n p + half n n / 2``, with whole chunks folded into the linear term.
    """
    row, chunk = profile.times.prefill, profile.chunk_tokens
    a_chunk = row.c0 + row.c1 * sqrt(chunk) + (row.c4 - row.c3) * chunk * chunk / 2
    return {
        "fixed_s": 1e-3 * (row.c0 + row.c1 * sqrt(_SHORT_TOKENS)),
        "linear_s": 1e-3 * (row.c2 + a_chunk / chunk),
        "cross_s": 1e-3 * row.c3,
        "half_s": 1e-3 * row.c3,
    }

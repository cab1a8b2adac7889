"""The table of policies: a row each, nothing is registered by importing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.errors import ConfigError
from router.policy.baselines import (
    LeastInflight,
    PowerOfTwo,
    Random,
    Rendezvous,
    RoundRobin,
    Sticky,
)
from router.policy.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.policy.view import Policy

POLICIES: Final[dict[str, Callable[[], Policy]]] = {
    "home": Home,
    "least_inflight": LeastInflight,
    "power_of_two": PowerOfTwo,
    "random": Random,
    "rendezvous": Rendezvous,
    "round_robin": RoundRobin,
    "sticky": Sticky,
}


def make(name: str) -> Policy:
    """The policy of this name.

    Raises:
        ConfigError: there is none; the message lists those there are.
    """
    factory = POLICIES.get(name)
    if factory is None:
        raise ConfigError(f"policy: {name!r} is not known; choose one of {', '.join(POLICIES)}")
    return factory()

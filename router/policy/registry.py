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
from router.policy.hashed import PrefixHash, RingBounded
from router.policy.home import Home
from router.policy.modal import ModalV2
from router.policy.scored import DynamoKv, LlmD
from router.policy.smg import SmgCacheAware, SmgCacheAwareOld

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.policy.view import Policy

POLICIES: Final[dict[str, Callable[[], Policy]]] = {
    "dynamo_kv": DynamoKv,
    "home": Home,
    "least_inflight": LeastInflight,
    "llm_d": LlmD,
    "modal_v2": ModalV2,
    "power_of_two": PowerOfTwo,
    "prefix_hash": PrefixHash,
    "random": Random,
    "rendezvous": Rendezvous,
    "ring_bounded": RingBounded,
    "round_robin": RoundRobin,
    "smg_cache_aware": SmgCacheAware,
    "smg_cache_aware_old": SmgCacheAwareOld,
    "sticky": Sticky,
}

PRICED: Final = frozenset({"home"})
"""Those that compare seconds, which have a replica's weight in them; the others take no notice of weights."""


def make(name: str) -> Policy:
    """The policy of this name.

    Raises:
        ConfigError: there is none; the message lists those there are.
    """
    factory = POLICIES.get(name)
    if factory is None:
        raise ConfigError(f"policy: {name!r} is not known; choose one of {', '.join(POLICIES)}")
    return factory()

"""Pairs of requests, a function of a seed: a conversation, and the same with one change.

What a change does to the prompt is not declared: the engine says, and the chain has to agree.
"""

from __future__ import annotations

import json
import random
from copy import deepcopy
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Final

from tests.engine.changes import CHAT as CHAT_CHANGES
from tests.engine.conversations import chat_body, messages_body
from tests.engine.messages_changes import MESSAGES as MESSAGES_CHANGES
from tests.unit.api_dialects.pair_bodies import CHAT, MESSAGES, Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.engine.changes import Change
    from tests.engine.conversations import Json


@dataclass(frozen=True)
class Family:
    """One conversation, and several pairs that have it on their left."""

    name: str
    path: str
    pairs: tuple[Pair, ...]


def families(seed: int) -> list[Family]:
    """300 pairs: half of them chat completions, half messages, over 25 conversations each."""
    dice = random.Random(seed)
    return [*_families(dice, _CHAT_API, 25, 6), *_families(dice, _MESSAGES_API, 25, 6)]


@dataclass(frozen=True)
class _Api:
    path: str
    invent: Callable[[random.Random], Json]
    changes: Sequence[Change]


_CHAT_API: Final = _Api(CHAT, chat_body, CHAT_CHANGES)
_MESSAGES_API: Final = _Api(MESSAGES, messages_body, MESSAGES_CHANGES)


def _families(dice: random.Random, api: _Api, n_families: int, n_changes: int) -> Iterator[Family]:
    catalogue = cycle(api.changes)
    for number in range(n_families):
        base = api.invent(dice)
        left = json.dumps(base).encode()
        pairs: list[Pair] = []
        while len(pairs) < n_changes:
            change = next(catalogue)
            changed = change(dice, deepcopy(base))
            if changed is None:
                continue
            right = changed if isinstance(changed, bytes) else json.dumps(changed).encode()
            if right != left:
                name = f"{number}.{len(pairs)} {change.__name__}"
                pairs.append(Pair(name, api.path, left, right))
        yield Family(f"{api.path[4:]} {number}", api.path, tuple(pairs))

"""What an engine generates before anybody is sent to it.

The first generation shows that it works; as many at once as it takes let it compile, or capture, what
it needs for batches of that size; each text that sessions begin with is then in its cache.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from replica.engines.base import Launch
    from replica.supervise.talk.probe import Probe, ProbeError

_TOKENS: Final = 16
_AT_ONCE_MAX: Final = 64
_GROWTH: Final = 4
_AT_ONCE: Final = 8
"""Where the launch does not say how many it takes."""
_PROMPT: Final = "Count to {number}."


async def warm_up(probe: Probe, launch: Launch, *, within_s: float) -> int:
    """Generate; answers the tokens that were made.

    Raises:
        ProbeError: the engine does not generate, or refuses a text that sessions begin with.
    """
    made = await probe.generate(
        _PROMPT.format(number=1), system=None, tokens=_TOKENS, within_s=within_s
    )
    for head in launch.shared_head:
        made += await probe.generate(
            _PROMPT.format(number=1), system=head, tokens=1, within_s=within_s
        )
    n_at_once = min(launch.inflight_max or _AT_ONCE, _AT_ONCE_MAX)
    size = 1
    while size < n_at_once:
        size = min(_GROWTH * size, n_at_once)
        made += await _at_once(probe, size, within_s)
    return made


async def _at_once(probe: Probe, count: int, within_s: float) -> int:
    """A batch of different prompts."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                probe.generate(
                    _PROMPT.format(number=100 * count + index),
                    system=None,
                    tokens=_TOKENS,
                    within_s=within_s,
                )
            )
            for index in range(count)
        ]
    return sum(task.result() for task in tasks)


def words_of(group: BaseExceptionGroup[ProbeError] | ProbeError) -> str:
    """The first failure's words."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return str(found)

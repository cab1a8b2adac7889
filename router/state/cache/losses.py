"""What an engine's count of cached tokens says of a replica that held less than was believed.

An engine gives up the least recently used first. So if a part of a prompt was gone when the request came,
all that was used no later than that part is gone as well: everything, where it lost the head that
all sessions share (a restart, a flush), and only the oldest, where it evicted. One report settles what is
believed of all sessions; what has been used since the request came is not judged by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from router.state.cache.held import Held
    from router.state.cache.prefix_index import Mark

_TRUSTED_SHARE: Final = 0.8
_TRUSTED_TOKENS: Final = 256
"""A belief is in estimated tokens: less than a fifth, and less than four pages, is no loss."""


def lost_since(
    held: Held, marks: tuple[Mark, ...], *, believed_tokens: int, reported_tokens: int, scale: float
) -> int | None:
    """The last use of what was believed to be cached and was not; None if nothing is missing.

    ``marks`` are those of when the request was placed, the deepest first. ``scale`` (above 0, at most 1) is
    how many tokens a token of our estimate was in truth, for this prompt.
    """
    least_tokens = (reported_tokens + _TRUSTED_TOKENS) / _TRUSTED_SHARE
    if believed_tokens * scale <= least_tokens:
        return None
    # The first segment that is certainly not among the reported tokens.
    n_there = held.segments_within(least_tokens / scale)
    for mark in marks:
        if mark.start <= n_there:
            return mark.used
    return None

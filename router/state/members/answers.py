"""What an answer's counts say of the replica: what it has lost, how much and how long it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.rows import Row
from router.state.cache.losses import lost_since

if TYPE_CHECKING:
    from router.state.cache.held import Held
    from router.state.cache.prefix_index import Mark, PrefixIndex
    from router.state.fleet.replica import Replica
    from router.state.history import RequestRecord

_KEPT_RATIO: Final = 0.5
_GONE_RATIO: Final = 0.25
"""Of the session's last prompt: what is between says neither."""

_SURPLUS_TOKENS: Final = 1_024


class Return(Row):
    """A session that came back to its home, going on from its last prompt: after how long, of how many tokens."""

    idle_s: float
    last_tokens: int


def answered(
    replica: Replica,
    record: RequestRecord,
    held: Held,
    marks: tuple[Mark, ...],
    *,
    index: PrefixIndex,
    back: Return | None,
) -> bool:
    """Learn from one answer's counts; True if the replica's room is seen to be another.

    If it reports less than was believed, less is believed of all its sessions.
    """
    reported_tokens, prompt_tokens = record.reported_cached_tokens, record.reported_prompt_tokens
    if reported_tokens is None or not prompt_tokens:
        return False
    counters, believed_tokens = replica.counters, record.predicted_cached_tokens
    if replica.n_caches > 1:
        return False
    used = lost_since(
        held,
        marks,
        believed_tokens=believed_tokens,
        reported_tokens=reported_tokens,
        # Where a prompt is larger than its bytes told (an image), the surplus is in what is new.
        scale=min(1.0, prompt_tokens / max(1, record.prompt_tokens)),
    )
    if used is not None:
        counters.cache_losses += 1
        counters.lost_bytes += index.lost(replica.replica_id, used)
        if not reported_tokens and replica.holdings is not None:
            replica.holdings.epoch += 1  # not even the head that all share was there
    if reported_tokens and back is not None and back.last_tokens > _SURPLUS_TOKENS:
        share = reported_tokens / back.last_tokens
        if share >= _KEPT_RATIO or share < _GONE_RATIO:
            replica.keeping.returned(back.idle_s, is_kept=share >= _KEPT_RATIO)
    return _room(
        replica,
        index.bytes_per_token,
        prompt_tokens=prompt_tokens,
        reported_tokens=reported_tokens,
        is_loss=used is not None,
        is_surplus=back is not None and reported_tokens - believed_tokens > _SURPLUS_TOKENS,
    )


def _room(
    replica: Replica,
    bytes_per_token: float,
    *,
    prompt_tokens: int,
    reported_tokens: int,
    is_loss: bool,
    is_surplus: bool,
) -> bool:
    """Whether a loss, or a find, shows another room than was assumed."""
    keeping, holdings = replica.keeping, replica.holdings
    if holdings is None or holdings.capacity_bytes <= 0:
        return False
    prompt_bytes = int(prompt_tokens * bytes_per_token)
    if prompt_bytes > holdings.capacity_bytes:
        return keeping.held(prompt_bytes, holdings.capacity_bytes)
    if not is_loss:
        return is_surplus and keeping.found(holdings.held_bytes, holdings.capacity_bytes)
    # Where not even the head that all share was there, it was a flush or a restart.
    if not reported_tokens:
        return False
    # There was room for what others used since, for what was left of this prompt, and now for all of it.
    others_bytes = max(0, holdings.held_bytes - prompt_bytes)
    left_bytes = others_bytes + int(reported_tokens * bytes_per_token)
    return keeping.lost(max(left_bytes, prompt_bytes), holdings.capacity_bytes)

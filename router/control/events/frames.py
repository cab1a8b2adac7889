"""SGLang's KV events as they come over the wire: where they are published, and what a frame says.

Token ids are skipped as a frame is decoded: of each page only its number is kept.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec

from router.state.cache.feeds import RANKS_MAX
from router.state.cache.pages import Change, Kind, Medium

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SEQUENCE_BYTES: Final = 8
END: Final = (-1).to_bytes(SEQUENCE_BYTES, "big", signed=True)
"""The sequence that ends a replay."""

_MEDIA: Final = {
    None: Medium.GPU,
    "GPU": Medium.GPU,
    "CPU_PINNED": Medium.CPU,
    "DISK": Medium.DISK,
}
"""A medium that is shared by several replicas says nothing of one of them."""

_PORT_MAX: Final = 65_535
_PAGE_TOKENS_MAX: Final = 65_536
EVENTS_MAX: Final = 65_536
"""In one step: one that evicts a long prompt, a page at a time, has fewer."""


class Endpoint(NamedTuple):
    """Where one cache is published. ``replay`` is empty where nothing is replayed."""

    live: str
    replay: str
    topic: bytes
    page_tokens: int
    rank: int
    n_ranks: int


class Frame(NamedTuple):
    """One step of a cache: what changed, and when its engine said so, on the engine's clock."""

    at_s: float
    changes: list[Change]
    n_skipped: int


class _Stored(msgspec.Struct, tag="BlockStored", tag_field="type", gc=False):
    block_hashes: list[int]
    parent_block_hash: int | None = None
    block_size: int = 0
    medium: str | None = None


class _Removed(msgspec.Struct, tag="BlockRemoved", tag_field="type", gc=False):
    block_hashes: list[int]
    medium: str | None = None


class _Cleared(msgspec.Struct, tag="AllBlocksCleared", tag_field="type", gc=False):
    pass


class _Batch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: Annotated[list[_Stored | _Removed | _Cleared], msgspec.Meta(max_length=EVENTS_MAX)]


_decode: Final = msgspec.msgpack.Decoder(_Batch).decode


def read_frame(payload: bytes, page_tokens: int) -> Frame | None:
    """One published step; None if it cannot be read. Pages of another size are left out, and counted."""
    changes: list[Change] = []
    n_skipped = 0
    try:
        batch = _decode(payload)
        for event in batch.events:
            if isinstance(event, _Cleared):
                changes.append(Change(Kind.CLEARED))
                continue
            medium = _MEDIA.get(event.medium)
            if medium is None:
                continue
            pages = array("q", event.block_hashes)
            if isinstance(event, _Removed):
                changes.append(Change(Kind.REMOVED, medium, None, pages))
            elif event.block_size in (0, page_tokens):
                changes.append(Change(Kind.STORED, medium, event.parent_block_hash, pages))
            else:
                n_skipped += 1
    except (msgspec.DecodeError, RecursionError, OverflowError):
        return None
    return Frame(batch.ts, changes, n_skipped)


def portions(changes: list[Change], pages_max: int) -> Iterator[list[Change]]:
    """The same changes in order, in portions of at most so many pages; each change counts as one more."""
    portion: list[Change] = []
    n_left = pages_max
    for change in changes:
        rest = change
        while len(rest.pages) >= n_left:
            if n_left > 1:
                head, tail = rest.pages[: n_left - 1], rest.pages[n_left - 1 :]
                portion.append(rest._replace(pages=head))
                is_chain = rest.kind is Kind.STORED
                rest = rest._replace(pages=tail, parent=head[-1] if is_chain else None)
            yield portion
            portion, n_left = [], pages_max
        portion.append(rest)
        n_left -= len(rest.pages) + 1
    if portion:
        yield portion


def sequence_of(frame: bytes) -> int | None:
    """A frame's sequence; None if it is none, or the end of a replay."""
    if len(frame) != SEQUENCE_BYTES or frame == END:
        return None
    return int.from_bytes(frame, "big")


def endpoints_of(told: object, host: str) -> Sequence[Endpoint]:
    """Where a replica at ``host`` says that it publishes, one for each cache; none if it does not.

    ``told`` is its ``/server_info``'s ``kv_events``, which may be anything. The host it names is one to
    listen on, mostly a wildcard, and could be anybody's: it is followed at its own.
    """
    if not isinstance(told, dict) or told.get("publisher") != "zmq":
        return ()
    page_tokens = _number(told, "block_size", _PAGE_TOKENS_MAX)
    base = _number(told, "endpoint_port_base", _PORT_MAX)
    n_ranks = _number(told, "dp_size", RANKS_MAX) if "dp_size" in told else 1
    if not (page_tokens and base and n_ranks) or base + n_ranks - 1 > _PORT_MAX:
        return ()
    topic = told.get("topic")
    at = f"[{host}]" if ":" in host else host
    replay = _number(told, "replay_endpoint_port_base", _PORT_MAX - n_ranks + 1)
    return [
        Endpoint(
            f"tcp://{at}:{base + rank}",
            f"tcp://{at}:{replay + rank}" if replay else "",
            topic.encode(errors="replace") if isinstance(topic, str) else b"",
            page_tokens,
            rank,
            n_ranks,
        )
        for rank in range(n_ranks)
    ]


def _number(told: Mapping[str, Any], key: str, most: int) -> int:
    """A count within its bounds; 0 for anything else."""
    value = told.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 < value <= most else 0

"""Bounded reading of JSON answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import aiohttp

_BYTES_MAX: Final = 4 << 20
_CHUNK_BYTES: Final = 1 << 16


async def read_json(answer: aiohttp.ClientResponse) -> Any:  # noqa: ANN401  (whatever was answered)
    """What was answered; None where that is no JSON.

    Raises:
        ValueError: it is larger than 4 MiB.
    """
    parts: list[bytes] = []
    n_bytes = 0
    async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
        parts.append(chunk)
        n_bytes += len(chunk)
        if n_bytes > _BYTES_MAX:
            raise ValueError(f"an answer of more than {_BYTES_MAX >> 20} MiB")
    try:
        return json.loads(b"".join(parts))
    except (ValueError, RecursionError):
        return None

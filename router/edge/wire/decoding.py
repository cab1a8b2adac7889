"""Compressed request bodies on their way to plain ones, without holding up the loop."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from router.errors import RouterError
from router.framing.decoding import decoded

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.edge.bounds.limits import EdgeLimits

_log: Final = logging.getLogger("homeport.edge")

_THREADS: Final = 2
"""Inflating lets go of the interpreter's lock; more threads would only hold more bodies."""


class Decoders:
    """A few threads, made with the first compressed body."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    def decode(
        self,
        body: bytes,
        coding: bytes,
        limits: EdgeLimits,
        done: Callable[[bytes | RouterError], None],
    ) -> asyncio.Future[bytes]:
        """Decode and call ``done`` in the loop, unless what is answered is cancelled before."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="decode")
        work = partial(
            decoded,
            body,
            coding,
            bytes_max=limits.body_bytes_max,
            ratio_max=limits.decoded_ratio_max,
        )
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        future.add_done_callback(partial(_tell, done))
        return future

    def close(self) -> None:
        """Let the threads end."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _tell(done: Callable[[bytes | RouterError], None], future: asyncio.Future[bytes]) -> None:
    if future.cancelled():
        return
    failure = future.exception()
    if failure is None:
        done(future.result())
    elif isinstance(failure, RouterError):
        done(failure)
    else:  # memory, say: the client is owed an answer all the same
        _log.error("decoding-failed", exc_info=failure)
        done(RouterError("internal", "The router failed on this body; it is logged."))

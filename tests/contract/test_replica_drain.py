"""SIGTERM: the replica leaves the fleet, and nobody who speaks to it notices."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.doubles.replica_calls import CHAT, chat_body, complete, load_when, session, status_of
from tests.doubles.replica_streams import events_of, read_event

if TYPE_CHECKING:
    from tests.doubles.engines import Member

N_TOKENS = 700
N_WHOLE_TOKENS = 1000  # it outlives the stream
EXIT_S_MAX = 30.0  # it looks every 5 s whether it may go


def has_ended(pid: int) -> bool:
    """Whether a process has ended; its exit code, where it is our child, is 0."""
    try:
        left = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # somebody else's, who looks after it
        return not Path(f"/proc/{pid}").exists()
    if left is None:
        return False
    assert (left.si_code, left.si_status) == (os.CLD_EXITED, 0)
    return True


async def test_a_replica_drains_before_it_ends(leaving: Member) -> None:
    async with session(leaving) as http:
        assert await status_of(http, "/ready") == 200
        options = {"include_usage": True}
        body = chat_body("x", output_tokens=N_TOKENS, stream=True, stream_options=options)
        async with http.post(CHAT, json=body) as running, asyncio.TaskGroup() as group:
            first = await read_event(running)
            whole = group.create_task(complete(http, chat_body("y", output_tokens=N_WHOLE_TOKENS)))
            await load_when(http, lambda load: load["num_running_reqs"] == 2)
            leaving.signal(signal.SIGTERM)
            async with asyncio.timeout(2):
                while await status_of(http, "/ready") != 503:
                    pass
            assert await status_of(http, "/health") == 503
            late = await complete(http, chat_body("late", output_tokens=9))
            assert late["usage"]["completion_tokens"] == 9
            assert await status_of(http, "/ready") == 503
            *_, (_, usage), (_, end) = events_of(first + await running.text())
    assert whole.result()["usage"]["completion_tokens"] == N_WHOLE_TOKENS
    assert usage["usage"]["completion_tokens"] == N_TOKENS
    assert end == "[DONE]"
    async with asyncio.timeout(EXIT_S_MAX):
        while not has_ended(leaving.pid):  # noqa: ASYNC110 -- it need not be our child
            await asyncio.sleep(0.05)

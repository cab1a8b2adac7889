"""Whether an engine still makes tokens: ``/health``, asked slowly, and at once when in doubt.

SGLang answers it from output: it takes a second or more, and its time-out when nothing comes. What
``/ready`` says follows the last such check, so a replica that is not ready is asked until it is. One that computes
is not asked: a prompt of 250,000 tokens makes no output for longer than the time-out, and the check itself
would make it not ready, for everybody. Whether it moves, its load report tells.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from router.control.observe.asking import Asker, Kind
from router.control.observe.client import NoAnswer, Trouble
from router.state.health.table import Event
from router.tasks import spawn

if TYPE_CHECKING:
    import asyncio

    from router.control.observe.asking import Surroundings
    from router.state.fleet.replica import Replica

_log: Final = logging.getLogger("homeport.probes")
_TIMEOUT_S: Final = 25.0
"""SGLang gives up after 20 s, and says so."""
_DOUBT_S: Final = 2.0
"""Between two checks of a replica that is in doubt."""
_VERDICT_S: Final = 0.9
"""SGLang waits in steps of a second: what comes sooner is not a verdict on its output."""


class HealthCheck:
    """Checks one replica's health, never two at a time, in a task of its own."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._ended_s = around.now_s() - around.health_s * around.dice.random()
        self._task: asyncio.Task[None] | None = None

    def consider(self, replica: Replica, *, is_ready: bool, is_doubted: bool) -> None:
        """Begin a check if one is due, sooner in doubt; ``is_ready``: what ``/ready`` just said."""
        if is_ready and (replica.load.inflight or replica.foreign_inflight):
            return
        every_s = self._around.health_s
        if is_doubted:
            every_s = min(every_s, _DOUBT_S)
        if self._task is None and self._around.now_s() - self._ended_s >= every_s:
            name = f"health {replica.replica_id}"
            self._task = spawn(self._check(replica, is_ready=is_ready), name=name)

    def stop(self) -> None:
        """End a check that runs."""
        if self._task is not None:
            self._task.cancel()

    async def _check(self, replica: Replica, *, is_ready: bool) -> None:
        around = self._around
        spec = replica.spec
        asker = Asker(around, spec)
        try:
            event = await self._ask(asker, is_ready=is_ready)
            current = around.core.fleet.get(spec.replica_id)
            if event is not None and current is not None and asker.is_for(current):
                around.core.members.heard(spec.replica_id, event, around.now_s())
        finally:
            asker.close()
            self._ended_s = around.now_s()
            self._task = None

    async def _ask(self, asker: Asker, *, is_ready: bool) -> Event | None:
        """What a check says of the engine; None where it says nothing of its output."""
        begun_s = self._around.now_s()
        try:
            answer = await asker.ask(Kind.HEALTH, _TIMEOUT_S)
        except NoAnswer as none:  # a connection that fails is for ``/ready`` to tell
            return Event.HEALTH_FAILED if none.trouble is Trouble.TIMEOUT else None
        if answer.status == HTTPStatus.OK:
            return Event.HEALTH_OK
        if answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return None
        # It starts or it drains: both endpoints say so at once.
        is_statement = not is_ready and self._around.now_s() - begun_s < _VERDICT_S
        return None if is_statement else Event.HEALTH_FAILED

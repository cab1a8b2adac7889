"""A replica that answers each path as a test says, and a core that records what probes tell of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from typing import TYPE_CHECKING, Any, Final

from router.clock import now_s
from router.control.observe.probes import Probes
from router.recording.records import Heard
from router.state.fleet.replica import ReplicaSpec
from router.state.rates.prefill import PrefillRate
from tests.doubles.recordings import recorded
from tests.doubles.scripted_replica import Call, ScriptedReplica, whole

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from router.core import RouterCore
    from router.recording.records import Record
    from router.state.health.table import Event

INTERVAL_S: Final = 0.08
FAR_S: Final = 1_000.0
PATIENT_S: Final = 20.0
"""A machine with other work must not make a replica look slow."""
MODELS: Final = b'{"data": [{"id": "m"}]}'


class Engine:
    """Answers each path with a body or a status; ``asked`` are the paths in order.

    What is listed in ``silent`` is never answered. ``moves``: each load report has a time of its own.
    """

    def __init__(self) -> None:
        self.answers: dict[str, bytes | int] = {
            "/ready": b"",
            "/health": b"",
            "/v1/models": MODELS,
            "/server_info": b'{"random_seed": 1}',
            "/v1/loads": b"",
        }
        self.silent: set[str] = set()
        self.moves = True
        self.row: dict[str, Any] = {"num_running_reqs": 1, "timestamp": 0}
        self.asked: list[str] = []
        self._news = asyncio.Condition()

    async def script(self, call: Call) -> None:
        path = call.head.split()[1].decode().partition("?")[0]
        self.asked.append(path)
        async with self._news:
            self._news.notify_all()
        if path in self.silent:
            await call.gone()
            return
        answer = self.answers.get(path, 404)
        if path == "/v1/loads" and answer == b"":
            self.row["timestamp"] += self.moves
            answer = json.dumps({"loads": [self.row]}).encode()
        if isinstance(answer, int):
            await call.send(whole(b"", status=b"%d X" % answer))
        else:
            await call.send(whole(answer))

    def count(self, path: str) -> int:
        return self.asked.count(path)

    async def wait_for(self, holds: Callable[[], bool]) -> None:
        """Until a question makes it true."""
        async with self._news:
            await self._news.wait_for(holds)

    async def rounds(self, n: int) -> None:
        """Until so many more rounds have begun."""
        until = self.count("/ready") + n
        await self.wait_for(lambda: self.count("/ready") >= until)


class Watched:
    """A core that records what it is told by probes."""

    def __init__(self, *, health_s: float = FAR_S, timeout_s: float | None = PATIENT_S) -> None:
        self.core: RouterCore
        self.core, self._journal = recorded()
        self.infos: list[tuple[str, Mapping[str, Any]]] = []
        self.probes = Probes(
            self.core,
            interval_s=INTERVAL_S,
            now_s=now_s,
            dice=random.Random(1),
            describe_s=FAR_S,
            health_s=health_s,
            timeout_s=timeout_s,
            on_described=lambda replica_id, info: self.infos.append((replica_id, info)),
        )

    def join(self, name: str, port: int) -> None:
        self.core.members.join(ReplicaSpec(name, "127.0.0.1", port, rate=PrefillRate()), now_s())
        self.probes.follow_membership()

    def told(self, kind: type[Record]) -> list[Any]:
        return [record for record in self._journal.records if isinstance(record, kind)]

    def heard(self, event: Event) -> int:
        return sum(record.event is event for record in self.told(Heard))

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():  # noqa: ASYNC110  (what the core believes has no event to wait on)
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def watched(engine: Engine) -> AsyncIterator[Watched]:
    """One replica ``r`` that has been asked once."""
    watched = Watched()
    async with ScriptedReplica(engine.script) as replica:
        watched.join("r", replica.port)
        try:
            async with asyncio.timeout(30):
                await watched.probes.start()
                yield watched
        finally:
            await watched.probes.stop()

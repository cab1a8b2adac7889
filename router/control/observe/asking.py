"""The questions there are, and asking them: counted, timed, and with what each needs."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from router.control.observe.client import BODY_BYTES_MAX, NoAnswer, ReplicaClient
from router.control.observe.exposition import PAGE_BYTES_MAX
from router.control.observe.feed import Feeds
from router.lookup import Lookups

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from router.control.observe.client import Answer
    from router.core import RouterCore
    from router.obs.probes import ProbeCounts
    from router.state.fleet.replica import Replica, ReplicaSpec

    DescribedListener = Callable[[str, Mapping[str, Any]], None]
    """Told a replica's id and what its ``/server_info`` says, each time that it has said it."""


class Kind(StrEnum):
    """What a replica is asked."""

    READY = "ready"
    LOADS = "loads"
    METRICS = "metrics"
    HEALTH = "health"
    INFO = "info"
    MODELS = "models"
    FEED = "feed"


_PATHS: Final = {
    Kind.READY: "/ready",
    Kind.LOADS: "/v1/loads?include=core",
    Kind.METRICS: "/metrics",
    Kind.HEALTH: "/health",
    Kind.INFO: "/server_info",
    Kind.MODELS: "/v1/models",
}
_OK: Final = int(HTTPStatus.OK)
_OPEN: Final = (Kind.READY, Kind.METRICS, Kind.HEALTH)
"""What SGLang answers without a key."""


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """What every watch of a fleet shares: who is told, clock and dice, how often, and how it is asked.

    ``interval_s`` is between two rounds, ``describe_s`` between two descriptions, ``health_s`` between
    two health checks. ``api_key`` is the fleet's, ``tls`` None believes the system's authorities.
    """

    core: RouterCore
    now_s: Callable[[], float]
    dice: random.Random
    counts: ProbeCounts
    interval_s: float
    describe_s: float
    health_s: float
    timeout_s: float
    api_key: str | None = None
    tls: ssl.SSLContext | None = None
    on_described: DescribedListener | None = None
    feeds: Feeds = field(default_factory=Feeds)
    lookups: Lookups = field(default_factory=Lookups)

    def secure(self) -> ssl.SSLContext:
        """The TLS towards replicas."""
        if self.tls is None:
            self.tls = ssl.create_default_context()
        return self.tls


class Asker:
    """Asks one replica, at the address and with the key that ``spec`` has."""

    def __init__(self, around: Surroundings, spec: ReplicaSpec) -> None:
        self.spec = spec
        self._around = around
        self._client = client = ReplicaClient(
            spec.host,
            spec.port,
            now_s=around.now_s,
            tls=around.secure() if spec.is_tls else None,
            api_key=spec.api_key or around.api_key,
            lookups=around.lookups,
        )
        self._requests = {
            kind: client.request(path, is_open=kind in _OPEN) for kind, path in _PATHS.items()
        }

    def is_for(self, replica: Replica) -> bool:
        """The replica is still where this asks."""
        spec = replica.spec
        return spec is self.spec or spec == self.spec

    async def ask(self, kind: Kind, timeout_s: float | None = None) -> Answer:
        """The answer, whatever its status; ``timeout_s`` None: what is usual.

        Raises:
            NoAnswer: there is none.
        """
        around = self._around
        begun_s = around.now_s()
        try:
            answer = await self._client.ask(
                self._requests[kind],
                timeout_s=around.timeout_s if timeout_s is None else timeout_s,
                bytes_max=PAGE_BYTES_MAX if kind is Kind.METRICS else BODY_BYTES_MAX,
            )
        except NoAnswer as none:
            around.counts.ended[kind, none.trouble] += 1
            raise
        around.counts.ended[kind, "ok" if answer.status == _OK else "status"] += 1
        around.counts.took[kind].add(around.now_s() - begun_s)
        return answer

    async def body(self, kind: Kind) -> bytes:
        """The body of an answer with status 200; empty without one."""
        try:
            answer = await self.ask(kind)
        except NoAnswer:
            return b""
        return answer.body if answer.status == _OK else b""

    def close(self) -> None:
        """Close the kept connection."""
        self._client.close()

"""The composition root: settings become objects here, and nowhere else."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import secrets
import signal
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from router.clock import epoch_s, now_s
from router.control.api.changes import Changes
from router.control.api.guard import Guard
from router.control.api.server import ControlApi
from router.control.discovery.feed import Outlet
from router.control.discovery.sources import Discovery
from router.control.events.subscriber import KvEvents
from router.control.observe.probes import Probes
from router.control.reload import Reloader
from router.control.sharing.opened import link_to_others
from router.control.whole.joining import Known
from router.control.whole.post import Post
from router.core import CoreParameters, RouterCore
from router.dialect import dialects
from router.dialect.options import DialectOptions
from router.edge.bounds.files import raise_open_files
from router.edge.bounds.limits import EdgeLimits, HoldLimits, RetryLimits
from router.edge.replicas.holders import Holder
from router.edge.server import FrontDoor
from router.framing.forwarding import ForwardingRules
from router.guards import edge_security, replica_tls, server_tls, tenants_gate, watched_files
from router.lookup import Lookups
from router.obs.access import AccessLog
from router.obs.logs import configure, is_logged, state_changed
from router.obs.metrics import Counts, RouterMetrics
from router.obs.observer import Observer
from router.obs.recorder import Recorder
from router.obs.sources import SourceCounts
from router.policy import registry
from router.recording.chains import LINKS_MAX
from router.recording.recorded_core import RecordedCore
from router.recording.records import Header
from router.recording.seal import Seal
from router.state.fleet.addresses import parse_url
from router.state.fleet.names import ModelNames
from router.state.fleet.replica import ReplicaSpec
from router.state.members.roster import Offer, Roster, Source
from router.tasks import spawn

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from pydantic import SecretStr

    from router.control.sharing.link import Link
    from router.settings import Settings
    from router.workers.place import Place

_log = logging.getLogger("homeport.serve")
_TICK_S: Final = 1.0
_GRACE_S: Final = 1.0
"""A worker that others take the place of still answers so long on connections that are kept."""
_GC_YOUNG: Final = 10_000
"""Objects made before the collector looks at the young ones. A request makes some hundred that its end
frees without it; what it finds are the cycles of errors."""
_KIB: Final = 1024
_MIB: Final = 1024 * 1024
_SEED_BITS: Final = 62
_SALT_BYTES: Final = 32


def edge_limits(settings: Settings) -> EdgeLimits:
    """The edge's bounds as the settings have them; the rest keep their defaults."""
    limits = settings.limits
    return EdgeLimits(
        body_bytes_max=int(limits.body_mib_max * _MIB),
        header_bytes_max=limits.header_kib_max * _KIB,
        headers_max=limits.headers_max,
        decoded_ratio_max=limits.decoded_ratio_max,
        connections_max=limits.connections_max,
        connections_per_client_max=limits.connections_per_client_max,
        connect_s=limits.connect_s,
        first_event_s=limits.first_event_s,
        answer_s=limits.answer_s,
        head_hold_s=limits.head_hold_s,
        heartbeat_s=limits.heartbeat_s,
        stream_idle_s=limits.stream_idle_s,
        request_read_s=limits.request_read_s,
        request_bytes_per_s=max(1, int(limits.request_kib_per_s_min * _KIB)),
        client_idle_s=limits.client_idle_s,
        upstream_reuse_s=limits.upstream_reuse_s,
        drain_s=limits.drain_s,
        is_started_repeated=settings.repeat_started,
        hold=HoldLimits(
            bytes_max=int(settings.hold.mib_max * _MIB),
            **settings.hold.model_dump(exclude={"mib_max"}),
        ),
        retry=RetryLimits(**settings.retry.model_dump()),
    )


def forwarding_rules(settings: Settings) -> ForwardingRules:
    """What replicas are told of a request's origin, as the settings have it."""
    told = settings.forwarding
    return ForwardingRules(told.origin, told.trusted_proxies, is_trace_begun=told.begin_trace)


def dialect_options(settings: Settings) -> DialectOptions:
    """How requests are read and changed, as the settings have it."""
    return DialectOptions(
        session_header=settings.session_header,
        is_billing_line_removed=settings.strip_billing_line,
        is_usage_asked=settings.ask_usage,
        is_inline_system_hoisted=settings.inline_system == "hoisted",
        is_old_reasoning_stripped=settings.old_reasoning == "stripped",
        is_thinking_in_head=settings.thinking == "head",
    )


def core_and_recorder(settings: Settings) -> tuple[RouterCore, Recorder | None]:
    """The core; if it is recorded, with the recorder that has yet to be started."""
    policy = registry.make(settings.policy)
    parameters = CoreParameters(inflight_max=settings.max_inflight_per_replica)
    seed = secrets.randbits(_SEED_BITS)
    dice = random.Random(seed)  # noqa: S311  (placement, not secrets)
    if settings.record is None:
        return RouterCore(policy, dice, parameters, on_state=state_changed), None
    header = Header(
        maker=f"homeport {version('homeport')}",
        policy=settings.policy,
        seed=seed,
        parameters=parameters,
        links_max=LINKS_MAX,
    )
    bytes_max = int(settings.record_mib_max * _MIB)
    recorder = Recorder(Path(settings.record), header, bytes_max=bytes_max)
    salt = settings.record_salt
    seal = Seal(
        secrets.token_bytes(_SALT_BYTES) if salt is None else salt.get_secret_value().encode()
    )
    core = RecordedCore(
        policy, dice, parameters, on_state=state_changed, seal=seal, journal=recorder
    )
    return core, recorder


def _text(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def static_replicas(settings: Settings) -> list[Offer]:
    """The replicas that the settings name."""
    offers: list[Offer] = []
    for url in settings.replica:
        address = parse_url(url)
        assert address is not None, "settings validate replica URLs"
        host, port, is_tls = address
        offers.append(Offer(ReplicaSpec(f"{host}:{port}", host, port, is_tls=is_tls)))
    return offers


def _access_log() -> AccessLog:
    return AccessLog(lambda delay_s, call: asyncio.get_running_loop().call_later(delay_s, call))


def _model_names(settings: Settings, core: RouterCore) -> ModelNames:
    aliases = dict(alias.split("=", 1) for alias in settings.aliases)
    return ModelNames(core.fleet, aliases=aliases, default_model=settings.default_model)


def _kv_events(
    settings: Settings, core: RouterCore, counts: Counts, tls: ssl.SSLContext | None
) -> KvEvents | None:
    if settings.kv_events == "off":
        return None
    key = _text(settings.replica_api_key)
    return KvEvents(core, counts, now_s=now_s, api_key=key, tls=tls)


class Router:
    """One router: the core, its two servers and its daemons."""

    def __init__(self, settings: Settings, place: Place | None = None) -> None:
        """``place`` is that of a worker among siblings, None for a router of one process."""
        self._settings = settings
        self._ticking: asyncio.Task[None] | None = None
        self.core, self._recorder = core_and_recorder(settings)
        counts = Counts()
        self._changes = Changes(counts.operator_changes, now_s)
        sources, self._link = self._name_replicas(settings, counts, place)
        self._access = _access_log() if settings.access_log and is_logged("info") else None
        gate = tenants_gate(settings)
        self._tls, to_replicas = server_tls(settings), replica_tls(settings)
        self.files = Reloader(
            [*watched_files(settings, gate, self._tls), *self.discovery.watched], counts
        )
        names = _model_names(settings, self.core)
        self._events = _kv_events(settings, self.core, counts, to_replicas)
        self._lookups = lookups = Lookups()
        self.door = FrontDoor(
            core=self.core,
            lookups=lookups,
            dialects=dialects(replace(dialect_options(settings), adapter_of=names.adapter_of)),
            names=names,
            engine_paths=settings.engine_paths,
            limits=edge_limits(settings),
            forwarding=forwarding_rules(settings),
            observer=Observer(counts, access=self._access, gate=gate),
            now_s=now_s,
            tying=None if self._events is None else self._events.tying,
            sharing=self._link,
            security=edge_security(settings, gate, self._tls, to_replicas),
        )
        if self._post is not None:
            self._post.share_responses(self.door.holders, Holder)
        self.probes = self._observed(settings, counts, to_replicas)
        board = None if place is None else place.board
        self._metrics = RouterMetrics(self.core, counts, self._recorder, gate, sources, board=board)
        self.api = ControlApi(
            self.core,
            self.roster,
            policy=settings.policy,
            metrics=self._metrics,
            now_s=now_s,
            is_ready=lambda: self.core.is_ready and not self.door.is_draining,
            on_membership=self.probes.follow_membership,
            changes=self._changes,
            guard=Guard(_text(settings.admin_key), is_metrics_open=settings.metrics_open),
            others=None if settings.redis_url is None else self._link,
        )

    def _posted(self, settings: Settings, place: Place | None) -> Post | None:
        if place is None:
            return None
        known = Known(self.core, self.roster, self._changes, now_s, epoch_s)
        return Post(place, known, shares_sessions=settings.redis_url is None)

    def _observed(self, settings: Settings, counts: Counts, tls: ssl.SSLContext) -> Probes:
        return Probes(
            self.core,
            interval_s=settings.probe_s,
            now_s=now_s,
            dice=random.Random(),  # noqa: S311  (jitter; the core's dice are its own)
            health_s=settings.health_s,
            api_key=_text(settings.replica_api_key),
            tls=tls,
            lookups=self._lookups,
            counts=counts.probes,
            on_described=None if self._events is None else self._events.described,
        )

    def _name_replicas(
        self, settings: Settings, counts: Counts, place: Place | None
    ) -> tuple[SourceCounts, Link | None]:
        """Make the roster and its sources, other routers among them; those that need no waiting have then spoken."""
        self.roster = Roster(
            self.core.members, self.core.fleet, leave_drain_s=settings.discovery.leave_drain_s
        )
        self.roster.offers(Source.STATIC, static_replicas(settings), now_s())
        sources = SourceCounts(self.roster.counts, now_s)
        jitter = random.Random()  # noqa: S311  (of pauses)
        outlet = Outlet(self.roster, sources, now_s, self._joined, jitter)
        self.discovery = Discovery(settings.discovery, outlet)
        self._post = self._posted(settings, place)
        link = link_to_others(
            settings,
            self.core,
            counts.sharing,
            roster=self.roster,
            on_membership=self._joined,
            place=place,
            missed=None if self._post is None else self._post.joining.missed,
        )
        return sources, link

    async def start(self) -> tuple[int, int]:
        """Probe the replicas once, then listen; answers the data and the control port.

        Raises:
            OSError: one of the addresses cannot be listened on; nothing is left running or written.
            ConfigError: the recording's file cannot be made; likewise.
        """
        try:
            if self._recorder is not None:
                await asyncio.to_thread(self._recorder.start)
            await self.discovery.start()
            if self._link is not None:
                await self._link.start()
            if self._post is not None:
                await self._post.begin(self.api)
            await self.probes.start()
            if self._events is not None:
                await self._events.start()
            port, admin_port = await self._listen()
        except BaseException:
            await self.stop()
            if self._recorder is not None:  # it holds nothing, and its name is wanted again
                await asyncio.to_thread(self._recorder.discard)
            raise
        self._ticking = spawn(self._tick(), name="tick")
        self._joined()
        self.files.start()
        if self._post is not None:
            self._post.ready()
        return port, admin_port

    async def _listen(self) -> tuple[int, int]:
        settings, post = self._settings, self._post
        tls = self._tls.context if self._tls and settings.tls.control else None
        handshake_s = settings.tls.handshake_s
        if post is not None:
            admin_port = await post.open(self.api, tls, handshake_s)
            place = post.place
            self.door.share(place.front, place, place.board.token.hex())
            return place.front[0].getsockname()[1], admin_port
        host, port = settings.admin_host, settings.admin_port
        admin_port = await self.api.start(host, port, tls, handshake_s)
        return await self.door.start(settings.host, settings.port), admin_port

    async def stop(self) -> None:
        """Drain the front door within its limit, then stop the rest."""
        if self._post is not None and self._post.leave(self.api):
            await self.door.leave(_GRACE_S)
        await self.door.stop()
        if self._ticking is not None:
            self._ticking.cancel()
        self.files.stop()
        await self.discovery.stop()
        await self.probes.stop()
        if self._events is not None:
            await self._events.stop()
        if self._link is not None:
            await self._link.stop()
        if self._post is not None:
            self._post.end(self._metrics.text())
        await self.api.stop()
        self._lookups.close()
        if self._access is not None:
            self._access.flush()
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.close)

    async def _tick(self) -> None:
        while True:
            self._let_time_pass(now_s())
            await asyncio.sleep(_TICK_S)

    def _let_time_pass(self, now_s: float) -> None:
        gone, ended = self.roster.expire(now_s), self.core.tick(now_s)
        self.roster.left(ended)
        for replica_id in (*gone, *ended):
            _log.warning("left replica=%s (its lease or its drain is over)", replica_id)
        if gone or ended:
            self.probes.follow_membership()

    def _joined(self) -> None:
        """A source named a new replica; before the start nobody is probed yet."""
        if self._ticking is not None:
            self.probes.follow_membership()


async def serve(
    settings: Settings, announce: Callable[[int, int], None], place: Place | None = None
) -> None:
    """Run a router, or one of its workers, until SIGTERM or SIGINT; a second signal ends it at once."""
    configure(settings.log_level)
    files, wanted = raise_open_files(), 2 * settings.limits.connections_max
    if files < wanted:
        _log.warning("open-files limit=%d wanted=%d (raise `ulimit -n`)", files, wanted)
    router = Router(settings, place)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    port, admin_port = await router.start()
    # What was built so far lives as long as the process: the collector need not look at it.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_YOUNG, *gc.get_threshold()[1:])

    def on_signal() -> None:
        if ended.is_set():
            raise SystemExit(1)
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    if router.files.is_watching:  # else a terminal that closes ends it, as ever
        loop.add_signal_handler(signal.SIGHUP, router.files.ask)
    announce(port, admin_port)
    await ended.wait()
    _log.info("draining limit_s=%s", settings.limits.drain_s)
    await router.stop()
    _log.info("stopped")

"""Watching one replica: rounds of questions, what they lead to, and when the next one is.

A round asks whether it is ready and what its load is. What it is, is asked when it is new, when
something hints that another process answers, and now and then. The core draws all conclusions.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Any, Final

from router.control.observe.asking import Asker, Kind
from router.control.observe.client import NoAnswer, Trouble
from router.control.observe.exposition import read_page
from router.control.observe.feed import LoadFeed, feed_address
from router.control.observe.health import HealthCheck
from router.control.observe.reports import (
    description,
    has_gone_back,
    observation,
    read_loads,
    read_object,
)
from router.state.health.table import Event, State
from router.tasks import spawn

if TYPE_CHECKING:
    from router.control.observe.asking import Surroundings
    from router.control.observe.reports import RankReport
    from router.state.fleet.replica import Description, Observation, Replica

_log: Final = logging.getLogger("homeport.probes")
_JITTER: Final = 0.1
_STEPS: Final = 4
"""A report that stands still is asked for again after a quarter of the interval, and a feed is read."""
_BEAT_S: Final = 0.1
_LEAST_S: Final = 0.001
_UNTOLD_S: Final = 5.0
"""Until a replica that did not say what it serves is asked again."""
_FED_S: Final = 10.0
"""Between two load reports of a replica whose feed is followed."""
_ABSENT: Final = (HTTPStatus.OK, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
"""With these there is no load report there, if what came is none."""
_UNASKABLE: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_CALM: Final = (State.READY, State.DRAINING)
_RETURNS_FROM: Final = (State.STARTING, State.DOWN)


class Watch:
    """Follows one replica until it leaves the fleet or the watch is stopped."""

    def __init__(self, around: Surroundings, replica_id: str) -> None:
        self._around = around
        self._replica_id = replica_id
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the replica was asked all for the first time."""
        self._asker: Asker | None = None
        self._health = HealthCheck(around)
        self._describing: asyncio.Task[None] | None = None
        self._describe_due_s = -inf
        self._said: Description | None = None
        self._has_info = False
        self._is_hinted = False
        self._seen: dict[Kind, Observation] = {}
        self._is_still = False
        self._source = Kind.LOADS
        self._page_due_s = -inf
        self._loads_due_s = -inf
        self._is_warned = False
        self._feed: LoadFeed | None = None

    async def run(self) -> None:
        """Ask round after round; whatever the replica answers, it goes on being asked."""
        around = self._around
        try:
            share = around.dice.random()  # replicas of one start are not asked all at once
            while (replica := around.core.fleet.get(self._replica_id)) is not None:
                pause_s = around.interval_s * share
                try:
                    await self._round(replica)
                    self._begin()
                    await self._pause(replica, pause_s)
                except Exception:  # noqa: BLE001  (an answer nobody thought of must not end the watch)
                    _log.exception("probe-failed replica=%s", self._replica_id)
                    self._begin()
                    await self._sleep(pause_s)
                share = 1.0 + _JITTER * (2.0 * around.dice.random() - 1.0)
        finally:
            self._stop()

    def _begin(self) -> None:
        if not self.begun.done():
            self.begun.set_result(None)

    def _stop(self) -> None:
        self._health.stop()
        if self._describing is not None:
            self._describing.cancel()
        if self._asker is not None:
            self._asker.close()
        self._follow(None)
        self._around.counts.load_changed_s.pop(self._replica_id, None)
        self._begin()

    async def _pause(self, replica: Replica, pause_s: float) -> None:
        """Until the next round; in between, look again where a report stands still, and at the feed."""
        if self._feed is None and not self._stands_still(replica):
            await self._sleep(pause_s)
            return
        for step in range(_STEPS):
            await self._sleep(pause_s / _STEPS)
            if self._feed is not None:
                self._read_feed(self._feed)
            if self._stands_still(replica) and step < _STEPS - 1:
                await self._observe(self._asker_of(replica))

    async def _sleep(self, pause_s: float) -> None:
        """Until the beat nearest to the end of a pause: watches that wake together cost less."""
        beat_s = min(_BEAT_S, self._around.interval_s / _STEPS)
        now_s = asyncio.get_running_loop().time()
        await asyncio.sleep(max(round((now_s + pause_s) / beat_s) * beat_s - now_s, _LEAST_S))

    def _stands_still(self, replica: Replica) -> bool:
        """Its last two load reports were one and the same, though requests of ours are there."""
        return self._is_still and replica.load.inflight > 0

    def _asker_of(self, replica: Replica) -> Asker:
        """The kept connection to where the replica is now."""
        asker = self._asker
        if asker is None or not asker.is_for(replica):
            if asker is not None:
                asker.close()
            self._is_hinted = self._is_hinted or asker is not None
            self._is_warned = False
            self._seen.clear()
            self._follow(None)
            self._asker = asker = Asker(self._around, replica.spec)
        return asker

    async def _round(self, replica: Replica) -> None:
        around, members = self._around, self._around.core.members
        asker = self._asker_of(replica)
        event = await self._ready(asker)
        if event is None or not asker.is_for(replica):
            return
        before = members.heard(self._replica_id, event, around.now_s())
        is_ready = event is Event.PROBE_OK
        if is_ready:
            await self._see_what_it_is(asker, replica, has_returned=before in _RETURNS_FROM)
        else:
            self._is_hinted = True
        if is_ready or (event is Event.PROBE_NOT_READY and replica.load.inflight):
            await self._observe(asker)
        if is_ready or event is Event.PROBE_NOT_READY:
            # A good answer may have ended the doubt already; the engine behind it is asked all the same.
            is_doubted = before is State.SUSPECT or replica.state not in _CALM
            self._health.consider(replica, is_ready=is_ready, is_doubted=is_doubted)

    async def _ready(self, asker: Asker) -> Event | None:
        """What ``/ready`` says; None where it was not asked, for reasons of this machine."""
        try:
            answer = await asker.ask(Kind.READY)
        except NoAnswer as none:
            if none.trouble is Trouble.OWN_LIMIT:
                return None
            is_refused = none.trouble is Trouble.REFUSED
            return Event.CONNECT_FAILED if is_refused else Event.PROBE_FAILED
        # An engine without the endpoint answers, and that is all there is to know.
        is_ready = answer.status in (HTTPStatus.OK, HTTPStatus.NOT_FOUND)
        return Event.PROBE_OK if is_ready else Event.PROBE_NOT_READY

    # What it is

    async def _see_what_it_is(self, asker: Asker, replica: Replica, *, has_returned: bool) -> None:
        """Ask what a replica is if that is due: now if it may be another, else beside the rounds."""
        if has_returned or self._is_hinted:
            self._is_hinted = False
            await self._describe(asker, is_news=has_returned)
        elif self._describing is None and self._around.now_s() >= self._describe_due_s:
            name = f"describe {replica.replica_id}"
            self._describing = spawn(self._describe_beside(asker), name=name)

    async def _describe_beside(self, asker: Asker) -> None:
        """Over a connection of its own: the engine itself is asked, and may take its time."""
        beside = Asker(self._around, asker.spec)
        try:
            await self._describe(beside, is_news=False)
        finally:
            beside.close()
            self._describing = None

    async def _describe(self, asker: Asker, *, is_news: bool) -> None:
        """Ask what a replica is: its capacity and its models.

        Without ``is_news`` only what has changed is told, and silence changes nothing.
        """
        around = self._around
        info = read_object(await asker.body(Kind.INFO))
        models = read_object(await asker.body(Kind.MODELS))
        replica = around.core.fleet.get(self._replica_id)
        if replica is None or not asker.is_for(replica):
            return
        said = description(info, models)
        is_whole = bool(said.models) and (bool(info) or not self._has_info)
        again_s = around.describe_s if is_whole else min(around.describe_s, _UNTOLD_S)
        self._describe_due_s = around.now_s() + again_s
        self._source, self._page_due_s = Kind.LOADS, -inf
        if info and not said.reports_cached and is_news:
            _log.warning(
                "no-cache-report replica=%s (start SGLang with --enable-cache-report)",
                self._replica_id,
            )
        if is_news or (is_whole and said != self._said):
            self._said, self._has_info = said, bool(info)
            around.core.members.described(self._replica_id, said)
        if info:
            self._subscribe(asker, info)
            if around.on_described is not None:
                around.on_described(self._replica_id, info)

    # What it carries

    async def _observe(self, asker: Asker) -> None:
        """Ask for a replica's load; without an answer the ledger alone speaks."""
        feed, now_s = self._feed, self._around.now_s()
        if feed is not None and feed.is_live(now_s) and now_s < self._loads_due_s:
            return
        self._loads_due_s = now_s + _FED_S
        if self._source is Kind.LOADS:
            ranks, status = await self._ask_load(asker)
            if ranks is not None:
                self._tell(asker, Kind.LOADS, ranks)
            if ranks is not None or status not in _ABSENT or now_s < self._page_due_s:
                return
        ranks = read_page(await asker.body(Kind.METRICS))
        if ranks is not None:
            self._source = Kind.METRICS
            self._tell(asker, Kind.METRICS, ranks)
        else:
            self._source, self._page_due_s = Kind.LOADS, now_s + self._around.describe_s

    async def _ask_load(self, asker: Asker) -> tuple[list[RankReport] | None, int]:
        """The ranks of ``/v1/loads``, None if that is no load report; and the status, 0 for none."""
        try:
            answer = await asker.ask(Kind.LOADS)
        except NoAnswer:
            return None, 0
        if answer.status in _UNASKABLE and not self._is_warned:
            self._is_warned = True
            _log.warning(
                "load-refused replica=%s status=%d (set replica_api_key to the replicas' --api-key)",
                self._replica_id,
                answer.status,
            )
        is_ok = answer.status == HTTPStatus.OK
        return (read_loads(answer.body) if is_ok else None), answer.status

    def _tell(self, asker: Asker, kind: Kind, ranks: list[RankReport]) -> None:
        """Tell the core what a load report says."""
        around = self._around
        replica = around.core.fleet.get(self._replica_id)
        if not ranks or replica is None or not asker.is_for(replica):
            return
        seen = observation(ranks, replica, around.now_s())
        before = self._seen.get(kind)
        self._seen[kind] = seen
        is_same = before is not None and before.stamp == seen.stamp
        if not is_same:
            around.counts.load_changed_s[self._replica_id] = seen.seen_s
        self._is_still = is_same and bool(seen.stamp) and kind is Kind.LOADS
        if before is not None and has_gone_back(before, seen):
            self._is_hinted = True
        around.core.members.observed(self._replica_id, seen)

    # The feed

    def _subscribe(self, asker: Asker, info: dict[str, Any]) -> None:
        """Follow the load feed that a replica says it has."""
        address, feed = feed_address(asker.spec.host, info), self._feed
        # ZeroMQ connects again after a loss, but not after a message that it refused.
        is_lost = feed is not None and not feed.is_live(self._around.now_s())
        if is_lost or address != (None if feed is None else feed.address):
            self._follow(None)
            self._follow(None if address is None else self._around.feeds.open(address))

    def _follow(self, feed: LoadFeed | None) -> None:
        if self._feed is not None:
            self._feed.close()
        self._feed = feed

    def _read_feed(self, feed: LoadFeed) -> None:
        now_s = self._around.now_s()
        if feed.read(now_s) and feed.is_live(now_s) and self._asker is not None:
            self._around.counts.ended[Kind.FEED, "ok"] += 1
            self._tell(self._asker, Kind.FEED, feed.reports())

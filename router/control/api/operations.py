"""What an operator does to a running fleet, over HTTP: every change is checked, made, and noted with its author."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec
from msgspec import UNSET

from router.control.api.answers import (
    ControlError,
    json_answer,
    unknown_replica,
    unknown_session,
)
from router.control.api.bodies import (
    DrainOrder,
    MoveOrder,
    PinOrder,
    Reason,
    ReplicaChange,
    decoded,
)
from router.control.api.changes import author_of
from router.control.api.shapes import ReplicaState, SessionState
from router.control.api.views import drain_end, pin_left_s, pinned_to
from router.control.sharing.others import Nobody
from router.errors import ClientError
from router.policy.registry import PRICED
from router.state.health.table import State
from router.state.shared.orders import Wish

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from router.control.api.changes import Author, Changes
    from router.control.sharing.others import Others
    from router.core import RouterCore
    from router.state.fleet.replica import Replica
    from router.state.members.roster import Roster
    from router.state.sessions.pins import Pin

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_PLAIN_WEIGHT: Final = 1.0


def session_key_of(request: web.Request, suffix: str = "") -> str:
    """The key in a path below ``/sessions/``: the raw path keeps an encoded slash apart from a real one."""
    raw = request.rel_url.raw_path.removeprefix("/sessions/")
    return unquote(raw.removesuffix(suffix))


class Operations:
    """The handlers of what changes replicas and sessions."""

    def __init__(
        self,
        core: RouterCore,
        roster: Roster,
        changes: Changes,
        *,
        policy: str,
        now_s: Callable[[], float],
        others: Others | None = None,
    ) -> None:
        self._core = core
        self._others = others or Nobody()
        self._roster = roster
        self._changes = changes
        self._policy = policy
        self._now_s = now_s

    @property
    def handlers(self) -> dict[str, Handler]:
        """By the name that the table of calls has for each."""
        return {
            "drain": self._drain,
            "undrain": self._undrain,
            "change": self._change,
            "forget": self._forget,
            "pin": self._pin,
            "unpin": self._unpin,
            "move": self._move,
        }

    async def _drain(self, request: web.Request) -> web.Response:
        order = decoded(await request.read(), DrainOrder, what="drain")
        author, replica = author_of(request, order.why), self._replica(request)
        now_s = self._now_s()
        before = _drain_facts(replica, now_s)
        self._roster.drain(
            replica.replica_id, now_s, deadline_s=order.deadline_s, leaves=order.remove
        )
        await self._others.ordered(
            replica.replica_id, Wish.DRAIN, leaves=order.remove, deadline_s=order.deadline_s
        )
        return self._changed("drain", author, replica, before, _drain_facts(replica, now_s))

    async def _undrain(self, request: web.Request) -> web.Response:
        author, replica = await self._asked(request, "undrain")
        now_s = self._now_s()
        before = _drain_facts(replica, now_s)
        self._roster.undrain(replica.replica_id, now_s)
        await self._others.ordered(replica.replica_id, Wish.UNDRAIN)
        if replica.state is State.DRAINING:
            raise ControlError(
                "drained-by-source",
                f"replica {replica.replica_id!r} drains because its sources want it: none names it any more, or"
                " one says that it goes; name it there again, or add it with POST /replicas",
            )
        return self._changed("undrain", author, replica, before, _drain_facts(replica, now_s))

    async def _change(self, request: web.Request) -> web.Response:
        order = decoded(await request.read(), ReplicaChange, what="change")
        author, replica = author_of(request, order.why), self._replica(request)
        weight, inflight_max = order.weight, order.inflight_max
        if weight is UNSET and inflight_max is UNSET:
            raise ClientError("bad-request", "change: give weight, inflight_max, or both")
        if (
            weight is not UNSET
            and weight not in (_PLAIN_WEIGHT, replica.weight)
            and self._policy not in PRICED
        ):
            raise ControlError(
                "weight-unused",
                f"weight: the policy {self._policy!r} prices nothing, so a weight would change nothing; run"
                f" the router with --policy {' or '.join(sorted(PRICED))}, or limit the replica with inflight_max",
            )
        before: dict[str, Any] = {}
        after: dict[str, Any] = {}
        if weight is not UNSET:
            before["weight"] = replica.weight
            self._core.operating.weigh(replica.replica_id, weight)
            after["weight"] = replica.weight
        if inflight_max is not UNSET:
            before["inflight_max"] = replica.inflight_max
            self._core.operating.limit(replica.replica_id, inflight_max)
            after["inflight_max"] = replica.inflight_max
        return self._changed("change", author, replica, before, after)

    async def _forget(self, request: web.Request) -> web.Response:
        author, replica = await self._asked(request, "forget")
        before = {"held_tokens": self._held_tokens(replica)}
        self._core.operating.forget(replica.replica_id)
        after = {"held_tokens": self._held_tokens(replica)}
        return self._changed("forget", author, replica, before, after)

    async def _pin(self, request: web.Request) -> web.Response:
        order = decoded(await request.read(), PinOrder, what="pin")
        author = author_of(request, order.why)
        pin = self._session(request, "/pin")
        self._demand_usable(order.replica)
        now_s = self._now_s()
        before = _pin_facts(pin, now_s)
        fix = partial(self._core.operating.fix, pin.key, order.replica, now_s, for_s=order.for_s)
        await self._others.changed(pin.key, fix)
        return self._session_changed("pin", author, pin, before, now_s)

    async def _unpin(self, request: web.Request) -> web.Response:
        author, pin = author_of(request), self._session(request, "/pin")
        now_s = self._now_s()
        before = _pin_facts(pin, now_s)
        await self._others.changed(pin.key, partial(self._core.operating.release, pin.key))
        return self._session_changed("unpin", author, pin, before, now_s)

    async def _move(self, request: web.Request) -> web.Response:
        order = decoded(await request.read(), MoveOrder, what="move")
        author = author_of(request, order.why)
        pin = self._session(request, "/move")
        self._demand_usable(order.replica)
        now_s = self._now_s()
        before = _pin_facts(pin, now_s)
        move = partial(self._core.operating.move, pin.key, order.replica, now_s)
        await self._others.changed(pin.key, move)
        return self._session_changed("move", author, pin, before, now_s)

    async def _asked(self, request: web.Request, what: str) -> tuple[Author, Replica]:
        """Who asks, and of which replica, where the body has at most a reason."""
        why = decoded(await request.read(), Reason, what=what).why
        return author_of(request, why), self._replica(request)

    def _replica(self, request: web.Request) -> Replica:
        replica_id = request.match_info["id"]
        replica = self._core.fleet.get(replica_id)
        if replica is None:
            raise unknown_replica(replica_id)
        return replica

    def _session(self, request: web.Request, suffix: str) -> Pin:
        key = session_key_of(request, suffix)
        pin = self._core.pins.get(key)
        if pin is None:
            raise unknown_session(key)
        return pin

    def _demand_usable(self, replica_id: str) -> None:
        """A session is only sent where it would be served."""
        replica = self._core.fleet.get(replica_id)
        if replica is None:
            raise unknown_replica(replica_id)
        if not self._core.operating.is_usable(replica_id):
            raise ControlError(
                "replica-not-usable",
                f"replica {replica_id!r} is {replica.state} and takes no requests: choose one that is ready"
                " (GET /fleet), or undrain or restart this one first",
            )

    def _held_tokens(self, replica: Replica) -> int:
        return int(replica.held_bytes / self._core.ratio.mean_bytes_per_token)

    def _changed(
        self,
        event: str,
        author: Author,
        replica: Replica,
        before: dict[str, Any],
        after: dict[str, Any],
    ) -> web.Response:
        self._changes.note(event, author, replica=replica.replica_id, before=before, after=after)
        return json_answer(
            ReplicaState(
                replica.replica_id,
                replica.state,
                replica.inflight,
                replica.weight,
                replica.inflight_max,
                self._held_tokens(replica),
                drain_end(replica, self._now_s()),
            )
        )

    def _session_changed(
        self, event: str, author: Author, pin: Pin, before: dict[str, Any], now_s: float
    ) -> web.Response:
        after = _pin_facts(pin, now_s)
        self._changes.note(event, author, session=pin.key, before=before, after=after)
        return json_answer(SessionState(key=pin.key, **after))


def _drain_facts(replica: Replica, now_s: float) -> dict[str, Any]:
    end = drain_end(replica, now_s)
    facts: dict[str, Any] = {"state": replica.state}
    return facts if end is None else facts | msgspec.structs.asdict(end)


def _pin_facts(pin: Pin, now_s: float) -> dict[str, Any]:
    return {
        "home": pin.home_id,
        "pinned": pinned_to(pin, now_s),
        "pin_left_s": pin_left_s(pin, now_s),
    }

"""The link to other routers, as the settings have it."""

from __future__ import annotations

import random
import secrets
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Final

from router.clock import epoch_s, now_s
from router.control.sharing.link import Link, LinkParameters
from router.control.sharing.table import FleetTable
from router.state.shared.desk import DeskParameters
from router.stores.access import access_of
from router.stores.siblings import SiblingsStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.core import RouterCore
    from router.obs.sharing import SharingCounts
    from router.settings import Settings
    from router.state.members.roster import Roster
    from router.stores.base import Store
    from router.workers.place import Place

_ROUTER_ID_BYTES: Final = 6


def redis_store(settings: Settings, url: str) -> Store:
    """The store that routers share; its client library is loaded only where there is one."""
    tls, told, secret = settings.redis_tls, settings.sharing, settings.redis_password
    access = access_of(
        url,
        prefix=told.prefix,
        command_s=told.command_s,
        username=settings.redis_username,
        password=None if secret is None else secret.get_secret_value(),
        ca_file=tls.ca_file,
        cert_file=tls.cert_file,
        key_file=tls.key_file,
        is_verified=tls.verify,
    )
    store: Store = import_module("router.stores.redis_store").RedisStore(access, random.Random())  # noqa: S311  (pauses)
    return store


def link_to_others(
    settings: Settings,
    core: RouterCore,
    counts: SharingCounts,
    *,
    roster: Roster,
    on_membership: Callable[[], None],
    place: Place | None = None,
    missed: Callable[[int], None] | None = None,
) -> Link | None:
    """The link to the other routers, None for a router that is alone.

    ``on_membership`` is called when a replica joined or left by another router's word. Without a Redis the workers of one router are linked by themselves: ``place`` is this one's, ``missed`` is
    called with a sibling's number after words of it were lost.
    """
    told = settings.sharing
    parameters = LinkParameters(
        told.read_ms_max / 1e3, told.publish_ms / 1e3, session_ttl_s=told.session_ttl_s
    )
    if settings.redis_url is not None:
        store, name = redis_store(settings, settings.redis_url), secrets.token_hex(_ROUTER_ID_BYTES)
    elif place is not None:
        assert missed is not None, "siblings may be missed"
        store, name = SiblingsStore(place, missed), place.name
        parameters = replace(parameters, desk=DeskParameters(is_gapless=False))
    else:
        if settings.routers_apart:
            core.peers.part(is_apart=True)
        return None
    link = Link(
        core,
        store,
        counts,
        router=name,
        now_s=now_s,
        dice=random.Random(),  # noqa: S311  (pauses)
        parameters=parameters,
    )
    if settings.redis_url is None:  # siblings repeat each other's calls instead
        return link
    link.table = FleetTable(
        core,
        roster,
        store,
        link.desk,
        now_s=now_s,
        wall_s=epoch_s,
        on_membership=on_membership,
    )
    link.desk.on_fleet = link.table.heard
    return link

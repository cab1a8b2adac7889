"""Replicas that DNS names, asked for again as their records run out.

One task a name, so that one that hangs delays no other. Of SRV records the group with the lowest
priority counts; weights do not, for where a request goes is priced, not drawn.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import dns.asyncresolver
import dns.exception
import dns.nameserver
import dns.resolver

from router.control.discovery.feed import OFFERS_MAX, Feed
from router.errors import ConfigError
from router.state.fleet.replica import ReplicaSpec
from router.state.members.roster import Offer, Source
from router.tasks import spawn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from router.control.discovery.feed import Outlet

_log = logging.getLogger("homeport.discovery")
_TTL_S_MIN: Final = 1.0
_TTL_S_MAX: Final = 60.0
_EMPTY_S: Final = 5.0
"""Until a name without records is asked for again, and a fault's first pause."""
_LIFETIME_S: Final = 5.0
"""For one question, with all its tries."""
_FAMILIES: Final = ("A", "AAAA")
_EMPTY_TWICE: Final = 2


class _Silent(Exception):  # noqa: N818  (it says what happened, as the project's errors do)
    """No answer that could be believed; the text says why."""


@dataclass(slots=True, frozen=True)
class _Found:
    """What a name has: addresses with ports, and how long that holds."""

    places: frozenset[tuple[str, int]]
    ttl_s: float


class _Name:
    """One name of the setting: what it had last, and how it fares."""

    def __init__(self, text: str, outlet: Outlet) -> None:
        parts = urlsplit(text)
        assert parts.hostname is not None, text
        self.text = text
        self.host = parts.hostname
        self.port = parts.port  # None: SRV records tell it
        self.feed = Feed(Source.DNS, text, outlet)
        self.places: frozenset[tuple[str, int]] = frozenset()
        self.by_family: dict[tuple[str, str], frozenset[str]] = {}
        self.n_empty = 0
        self.has_answered = asyncio.Event()


class DnsSource:
    """Asks for all its names from :meth:`start` to :meth:`stop`, and says what they have together."""

    def __init__(
        self,
        names: Sequence[str],
        outlet: Outlet,
        *,
        nameserver: str | None = None,
        scheme: str = "http",
        ttl_s_min: float = _TTL_S_MIN,
        lifetime_s: float = _LIFETIME_S,
        empty_s: float = _EMPTY_S,
    ) -> None:
        """Prepare; ``nameserver`` is ADDRESS:PORT, None for the system's.

        Raises:
            ConfigError: the system names no DNS server.
        """
        self._outlet = outlet
        self._resolver = _resolver(nameserver)
        self._is_tls = scheme == "https"
        self._ttl_s_min = ttl_s_min
        self._lifetime_s = lifetime_s
        self._empty_s = empty_s
        self._names = [_Name(text, outlet) for text in names]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Ask from now on."""
        self._tasks = [
            spawn(self._follow(name), name=f"discovery {name.text}") for name in self._names
        ]

    async def stop(self) -> None:
        """Ask no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def answered(self) -> None:
        """Wait until each name has been asked for once, whatever came of it."""
        for name in self._names:
            await name.has_answered.wait()

    async def _follow(self, name: _Name) -> None:
        while True:
            wait_s = await self._round(name)
            name.has_answered.set()
            await asyncio.sleep(wait_s * (0.9 + 0.1 * self._outlet.dice.random()))

    async def _round(self, name: _Name) -> float:
        """Ask for one name once; answers in how many seconds to ask again."""
        try:
            found = await self._ask(name)
        except _Silent as failure:
            name.feed.failed(f"{failure}")
            return self._empty_s
        except Exception as failure:  # noqa: BLE001  (one that nobody thought of must not end the source)
            _log.exception("discovery-failed source=%s", name.text)
            name.feed.failed(f"{type(failure).__name__}: {failure}"[:300])
            return _TTL_S_MAX
        if len(found.places) > OFFERS_MAX:
            name.feed.failed(f"{len(found.places)} addresses; at most {OFFERS_MAX} are taken")
            return _TTL_S_MAX
        if found.places:
            name.n_empty = 0
        else:
            name.n_empty += 1
            if name.places and name.n_empty < _EMPTY_TWICE:
                # A DNS server that has just started may not know its names yet.
                name.feed.failed("no records any more; believed if it is said again")
                return self._empty_s
        name.places = found.places
        # Of several names each keeps what it had; together they are what DNS says.
        name.feed.say(self._offers(set().union(*(each.places for each in self._names))))
        return found.ttl_s if found.places else self._empty_s

    def _offers(self, places: Iterable[tuple[str, int]]) -> list[Offer]:
        return [
            Offer(
                ReplicaSpec(
                    f"{host}:{port}", host, port, source=Source.DNS.value, is_tls=self._is_tls
                )
            )
            for host, port in sorted(places)
        ]

    async def _ask(self, name: _Name) -> _Found:
        if name.port is not None:
            hosts, ttl_s = await self._addresses(name, name.host)
            return _Found(frozenset((host, name.port) for host in hosts), ttl_s)
        records, ttl_s = await self._records(name.host, "SRV")
        rows = [(row.priority, row.target.to_text(), row.port) for row in records]
        first = min((priority for priority, _, _ in rows), default=0)
        targets = {(host, port) for priority, host, port in rows if priority == first and port}
        targets = {(host, port) for host, port in targets if host != "."}  # "." is: not here
        if len(targets) > OFFERS_MAX:
            raise _Silent(f"{len(targets)} SRV records; at most {OFFERS_MAX} are taken")
        places: set[tuple[str, int]] = set()
        for target in sorted({host for host, _ in targets}):
            hosts, target_ttl_s = await self._addresses(name, target)
            ttl_s = min(ttl_s, target_ttl_s)
            places |= {(host, port) for host in hosts for at, port in targets if at == target}
        hosts_now = {host for host, _ in targets}
        name.by_family = {key: had for key, had in name.by_family.items() if key[0] in hosts_now}
        return _Found(frozenset(places), ttl_s)

    async def _addresses(self, name: _Name, host: str) -> tuple[frozenset[str], float]:
        """All addresses of a host. A family that cannot be asked for keeps what it had."""
        answers = await asyncio.gather(
            *(self._records(host, family) for family in _FAMILIES), return_exceptions=True
        )
        found: set[str] = set()
        ttls: list[float] = []
        silent: list[_Silent] = []
        for family, answer in zip(_FAMILIES, answers, strict=True):
            if isinstance(answer, _Silent):
                silent.append(answer)
                found |= name.by_family.get((host, family), frozenset())
            elif isinstance(answer, BaseException):
                raise answer
            else:
                records, ttl_s = answer
                had = frozenset(ipaddress.ip_address(row.address).compressed for row in records)
                name.by_family[host, family] = had
                found |= had
                if had:
                    ttls.append(ttl_s)
        if len(silent) == len(_FAMILIES) or (silent and not found):
            raise silent[0]
        return frozenset(found), min(ttls, default=self._empty_s)

    async def _records(self, host: str, kind: str) -> tuple[list[Any], float]:
        """The records of a kind and their time to live; none where DNS says that there are none."""
        try:
            answer = await self._resolver.resolve(
                host, kind, raise_on_no_answer=False, lifetime=self._lifetime_s
            )
        except dns.resolver.NXDOMAIN:
            return [], self._empty_s
        except (dns.exception.DNSException, OSError) as failure:
            raise _Silent(f"{host} {kind}: {failure}"[:300]) from None
        if answer.rrset is None:
            return [], self._empty_s
        ttl_s = float(answer.chaining_result.minimum_ttl)
        return list(answer.rrset), min(max(ttl_s, self._ttl_s_min), _TTL_S_MAX)


def _resolver(nameserver: str | None) -> dns.asyncresolver.Resolver:
    if nameserver is None:
        try:
            resolver = dns.asyncresolver.Resolver()
        except dns.resolver.NoResolverConfiguration as failure:
            raise ConfigError(f"discovery.dns: {failure}; set discovery.nameserver") from None
        resolver.use_search_by_default = True
        return resolver
    host, _, port = nameserver.rpartition(":")
    resolver = dns.asyncresolver.Resolver(configure=False)
    resolver.nameservers = [dns.nameserver.Do53Nameserver(host.strip("[]"), int(port))]
    return resolver

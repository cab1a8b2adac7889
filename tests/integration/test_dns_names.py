"""Replicas that DNS names: addresses, SRV records, times to live, and a server that fails."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from router.control.discovery.dns import DnsSource
from tests.doubles.discovered import Discovered, until
from tests.doubles.name_server import NameServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture
def names() -> Iterator[NameServer]:
    with NameServer() as started:
        yield started


@contextlib.asynccontextmanager
async def asking(
    names: NameServer, *targets: str, scheme: str = "http", lifetime_s: float = 2.0
) -> AsyncIterator[Discovered]:
    found = Discovered()
    source = DnsSource(
        targets,
        found.outlet,
        nameserver=names.address,
        scheme=scheme,
        ttl_s_min=0.02,
        lifetime_s=lifetime_s,
        empty_s=0.02,
    )
    source.start()
    try:
        yield found
    finally:
        await source.stop()


async def test_all_addresses_of_a_name_are_replicas(names: NameServer) -> None:
    names.a["fleet.test"] = ["10.0.0.1", "10.0.0.2"]
    names.aaaa["fleet.test"] = ["fd00::1"]
    async with asking(names, "dns://fleet.test:30000") as found:
        await found.until_named("10.0.0.1:30000", "10.0.0.2:30000", "fd00::1:30000")
        assert found.urls()["fd00::1:30000"] == "http://[fd00::1]:30000"
        assert found.replica("10.0.0.1:30000").spec.source == "dns"
        names.a["fleet.test"] = ["10.0.0.2", "10.0.0.3"]
        await found.until_named("10.0.0.2:30000", "10.0.0.3:30000", "fd00::1:30000")
        before = found.core.fleet.n_changes
        n_asked = names.n_asked["A"]
        await until(lambda: names.n_asked["A"] > n_asked + 2)
        assert found.core.fleet.n_changes == before
        assert found.failures == 0


async def test_of_srv_records_the_lowest_priority_counts_whatever_the_weights(
    names: NameServer,
) -> None:
    names.srv["_http._tcp.fleet.test"] = [
        (10, 0, 30_000, "a.test"),
        (10, 5, 30_001, "b.test"),
        (20, 9, 30_000, "c.test"),
    ]
    names.a |= {"a.test": ["10.0.0.1"], "b.test": ["10.0.0.2"], "c.test": ["10.0.0.3"]}
    async with asking(names, "srv://_http._tcp.fleet.test", scheme="https") as found:
        await found.until_named("10.0.0.1:30000", "10.0.0.2:30001")
        assert found.urls()["10.0.0.1:30000"] == "https://10.0.0.1:30000"
        del names.srv["_http._tcp.fleet.test"][:2]
        await found.until_named("10.0.0.3:30000")
        names.srv["_http._tcp.fleet.test"] = [(0, 0, 0, ".")]  # not offered here
        await found.until_named()


async def test_a_name_is_asked_for_again_when_its_records_run_out(names: NameServer) -> None:
    names.a["fleet.test"] = ["10.0.0.1"]
    names.ttl_s = 3_600
    with NameServer() as other:
        other.a["fleet.test"] = ["10.0.1.1"]
        async with (
            asking(names, "dns://fleet.test:1") as found,
            asking(other, "dns://fleet.test:1"),
        ):
            await found.until_named("10.0.0.1:1")
            await until(lambda: other.n_asked["A"] > 10)  # whose records hold no time at all
            assert names.n_asked["A"] == 1


@pytest.mark.parametrize("how", ["no-name", "no-records"])
async def test_no_records_are_believed_when_they_are_told_twice(
    names: NameServer, how: str
) -> None:
    names.a["fleet.test"] = ["10.0.0.1"]
    async with asking(names, "dns://fleet.test:1") as found:
        await found.until_named("10.0.0.1:1")
        if how == "no-name":
            del names.a["fleet.test"]
        else:
            names.a["fleet.test"] = []
        await found.until_failed()
        n_asked = names.n_asked["A"]
        await found.until_named()
        assert names.n_asked["A"] >= n_asked
        assert found.failures == 1
        names.a["fleet.test"] = ["10.0.0.1"]
        await found.until_named("10.0.0.1:1")


async def test_a_name_server_that_forgets_for_one_answer_drains_nothing(
    names: NameServer,
) -> None:
    names.a["fleet.test"] = ["10.0.0.1"]
    async with asking(names, "dns://fleet.test:1") as found:
        await found.until_named("10.0.0.1:1")
        before = found.core.fleet.n_changes
        for n in (1, 2):
            names.a["fleet.test"] = []
            await found.until_failed(n)
            names.a["fleet.test"] = ["10.0.0.1"]
            [health] = found.counts.healths
            await until(lambda health=health: not health.is_failing)  # type: ignore[misc]
        assert found.core.fleet.n_changes == before


@pytest.mark.parametrize("kinds", [{"A", "AAAA"}, {"SRV"}], ids=["addresses", "srv"])
async def test_a_server_that_fails_keeps_what_was_said(
    names: NameServer, kinds: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    names.srv["_http._tcp.fleet.test"] = [(0, 0, 1, "a.test")]
    names.a["a.test"] = ["10.0.0.1"]
    async with asking(names, "srv://_http._tcp.fleet.test") as found:
        await found.until_named("10.0.0.1:1")
        before = found.core.fleet.n_changes
        names.fails = kinds
        await found.until_failed(3)
        assert found.core.fleet.n_changes == before
        assert caplog.text.count("source-failed") == 1
        names.fails, names.a["a.test"] = set(), ["10.0.0.2"]
        await found.until_named("10.0.0.2:1")
        [health] = found.counts.healths
        await until(lambda: not health.is_failing)


async def test_a_family_that_fails_takes_the_other_nothing(names: NameServer) -> None:
    names.a["fleet.test"] = ["10.0.0.1"]
    names.aaaa["fleet.test"] = ["fd00::1"]
    async with asking(names, "dns://fleet.test:1") as found:
        await found.until_named("10.0.0.1:1", "fd00::1:1")
        names.fails = {"AAAA"}
        names.a["fleet.test"] = ["10.0.0.2"]
        await found.until_named("10.0.0.2:1", "fd00::1:1")


async def test_a_silent_server_keeps_what_was_said_and_holds_up_no_other_name(
    names: NameServer,
) -> None:
    with NameServer() as other:
        other.a["fleet.test"] = ["10.0.1.1"]
        names.a["fleet.test"] = ["10.0.0.1"]
        async with (
            asking(names, "dns://fleet.test:1", lifetime_s=0.2) as found,
            asking(other, "dns://fleet.test:1") as others,
        ):
            await found.until_named("10.0.0.1:1")
            names.is_silent = True
            await found.until_failed(2)
            await found.until_named("10.0.0.1:1")
            other.a["fleet.test"] = ["10.0.1.2"]
            await others.until_named("10.0.1.2:1")


async def test_a_name_that_fails_leaves_the_others_theirs(names: NameServer) -> None:
    names.a["one.test"] = ["10.0.0.1"]
    async with asking(names, "dns://one.test:1", "srv://two.test") as found:
        await found.until_named("10.0.0.1:1")
        names.fails = {"SRV"}
        await found.until_failed()
        names.a["one.test"] = ["10.0.0.2"]
        await found.until_named("10.0.0.2:1")

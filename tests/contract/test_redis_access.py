"""The ways to a Redis: TLS, a user who may do little, Sentinel with a failover, a Cluster of three."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
import redis

from router.settings import Settings
from router.settings.sharing import redis_url
from router.stores.access import Kind, access_of
from router.stores.base import StoreError, Trouble
from router.stores.redis_store import RedisStore
from tests.contract.test_stores import WAIT_S, Ears, Stored
from tests.doubles.certificates import Authority
from tests.doubles.processes import tied
from tests.doubles.redis_server import WHEEL, RedisServer, free_port, newest, running_redis

if TYPE_CHECKING:
    from collections.abc import Iterator

RIGHTS = "+@read +@write +@scripting +publish +subscribe +unsubscribe +ping +select +script|load"


class Reached(NamedTuple):
    """A store that listens."""

    store: RedisStore
    ears: Ears


@contextlib.asynccontextmanager
async def reached(url: str, **more: Any) -> Any:  # noqa: ANN401
    store, ears = RedisStore(access_of(url, **more), random.Random(1)), Ears()
    await store.start(ears)
    try:
        await ears.until(lambda: ears.n_listening > 0)
        yield Reached(store, ears)
    finally:
        await store.stop()


async def works(found: Reached) -> None:
    """Everything that routers ask of a store, once."""
    store, ears = found
    rows = [Stored(f"{n:032x}", 0, n) for n in range(40)]
    assert await store.write(rows, ttl_s=60.0) == [None] * 40
    assert await store.read([row.key for row in rows]) == [row.value for row in rows]
    assert await store.write([Stored(rows[9].key, 0, 1)], ttl_s=60.0) == [rows[9].value]
    assert await store.swap(Stored(rows[0].key, 1, 1), expected=0, ttl_s=60.0) is None
    assert await store.hold("lease:x", b"1", expected=None, ttl_s=60.0)
    assert [lease.value for lease in await store.held()] == [b"1"]
    n = len(ears.heard)
    await store.say("r1", b"v", b"hello", ttl_s=5.0)
    await ears.until(lambda: len(ears.heard) > n)
    assert ears.heard[-1] == b"hello"


@pytest.mark.parametrize(
    "url",
    [
        "redis://:secret@h", "http://h", "redis://h:1,h:2", "redis+sentinel://h:1", "redis://", "redis://h/a b",
        "unix://relative",
    ],
)  # fmt: skip
def test_a_url_that_leads_nowhere_or_holds_a_password_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"redis|user or a password|names") as refused:
        redis_url(url)
    assert "secret" not in str(refused.value)


def test_a_url_says_where_redis_is() -> None:
    one = access_of("rediss://cache.example/2")
    assert (one.kind, one.places, one.db, one.is_tls) == (
        Kind.SERVER, (("cache.example", 6379),), 2, True,
    )  # fmt: skip
    many = access_of("redis+sentinel://a,[::1]:99/main")
    assert (many.kind, many.places, many.master) == (
        Kind.SENTINEL, (("a", 26379), ("::1", 99)), "main",
    )  # fmt: skip
    assert access_of("redis+cluster://a:1,b:2").kind is Kind.CLUSTER
    assert access_of("unix:///run/redis.sock").unix_path == "/run/redis.sock"


def test_a_password_is_shown_by_nothing() -> None:
    settings = Settings.model_validate({"redis_url": "redis://h", "redis_password": "se-cr-et"})
    assert "se-cr-et" not in repr(settings)
    assert "se-cr-et" not in repr(access_of("redis://h", password="se-cr-et"))


@pytest.mark.parametrize("build", ["redis-6.2", "redis-7"])
async def test_a_user_who_may_only_what_is_needed(build: str) -> None:
    with running_redis(program=WHEEL if build == "redis-6.2" else newest()) as server:
        rights = [*RIGHTS.split(), "~homeport:*", "resetchannels", "&homeport:*"]
        server.client.execute_command("ACL", "SETUSER", "router", "on", ">pass word", *rights)
        async with reached(server.url, username="router", password="pass word") as found:
            await works(found)
        wrong = RedisStore(
            access_of(server.url, username="router", password="no"), random.Random(1)
        )
        with pytest.raises(StoreError) as refused:
            await wrong.read(["a"])
        assert refused.value.trouble is Trouble.REFUSED
        await wrong.stop()


async def test_over_tls_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    server_pair, own = authority.issue("server"), authority.issue("router")
    port = free_port()
    flags = (
        "--port", "0", "--tls-port", str(port), "--tls-cert-file", server_pair.cert, "--tls-key-file", server_pair.key,
        "--tls-ca-cert-file", authority.cert,
    )  # fmt: skip
    tls = {
        "ssl": True, "ssl_ca_certs": authority.cert, "ssl_certfile": own.cert, "ssl_keyfile": own.key,
    }  # fmt: skip
    with running_redis(*flags, program=newest(), port=port, **tls):
        url = f"rediss://127.0.0.1:{port}"
        files = {"cert_file": own.cert, "key_file": own.key}
        async with reached(url, ca_file=authority.cert, **files) as found:
            await works(found)
        stranger = RedisStore(access_of(url, ca_file=other.cert, **files), random.Random(1))
        with pytest.raises(StoreError) as refused:
            await stranger.read(["a"])
        assert refused.value.trouble is Trouble.UNREACHABLE
        await stranger.stop()


@pytest.fixture
def sentinel() -> Iterator[tuple[int, RedisServer, RedisServer]]:
    """A master with a replica, and a sentinel at a port."""
    program = newest()
    with running_redis(program=program) as one, contextlib.ExitStack() as stack:
        leader = ("--replicaof", "127.0.0.1", str(one.port))
        two = stack.enter_context(running_redis(*leader, program=program))
        port = free_port()
        config = Path(one.folder) / "sentinel.conf"
        config.write_text(
            f"port {port}\ndir {one.folder}\nsentinel monitor main 127.0.0.1 {one.port} 1\n"
            "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n"
        )
        watcher = subprocess.Popen(
            [*tied(), program, str(config), "--sentinel"],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield port, one, two
        finally:
            watcher.kill()
            watcher.wait(10)


async def found_each_other(watcher: redis.Redis, two: RedisServer) -> None:
    """Wait until a sentinel knows its master's replica, and that one has all there is."""
    async with asyncio.timeout(40):
        while True:  # processes that nobody can be told by
            with contextlib.suppress(redis.RedisError, KeyError):
                state: Any = watcher.sentinel_master("main")
                link = two.client.info("replication")["master_link_status"]
                if state["num-slaves"] >= 1 and link == "up":
                    return
            await asyncio.sleep(0.1)


async def test_sentinel_leads_to_the_new_master(
    sentinel: tuple[int, RedisServer, RedisServer],
) -> None:
    port, one, two = sentinel
    with redis.Redis(port=port) as watcher:
        await found_each_other(watcher, two)
    async with asyncio.timeout(40):
        await asyncio.sleep(1.0)  # the sentinel looks at its master's replicas once a second
        async with reached(f"redis+sentinel://127.0.0.1:{port}/main") as found:
            await works(found)
            n_listening = found.ears.n_listening
            one.send(signal.SIGKILL)
            while True:
                with contextlib.suppress(StoreError):
                    await found.store.say("r2", b"v", b"after", ttl_s=5.0)
                    break
                await asyncio.sleep(0.1)
            await found.ears.until(lambda: found.ears.n_listening > n_listening)
            while b"again" not in found.ears.heard:
                await found.store.say("r2", b"v", b"again", ttl_s=5.0)
                await asyncio.sleep(0.1)
            assert two.client.role()[0] == b"master"


# The client library leaves the connections by which it has asked for the nodes to the collector.
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
async def test_a_cluster_of_three() -> None:
    program = newest()
    with contextlib.ExitStack() as stack:
        nodes = [
            stack.enter_context(
                running_redis(
                    "--cluster-enabled", "yes", "--cluster-node-timeout", "2000", program=program
                )
            )
            for _ in range(3)
        ]
        places = [f"127.0.0.1:{node.port}" for node in nodes]
        made = subprocess.run(  # noqa: ASYNC221  (nothing else runs)
            [
                f"{program.removesuffix('server')}cli",
                "--cluster",
                "create",
                *places,
                "--cluster-yes",
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        async with asyncio.timeout(2 * WAIT_S):
            while any(node.client.cluster("info")["cluster_state"] != "ok" for node in nodes):  # noqa: ASYNC110
                await asyncio.sleep(0.1)  # each finds out by itself
            async with (
                reached(f"redis+cluster://{places[0]},{places[1]}", command_s=5.0) as found,
                reached(f"redis+cluster://{places[2]}", command_s=5.0) as other,
            ):
                await works(found)
                await other.store.say("r3", b"v", b"to all", ttl_s=5.0)
                await found.ears.until(lambda: b"to all" in found.ears.heard)
        held = [node.client.dbsize() for node in nodes]
        assert all(held), "sessions lie on all nodes"


async def test_who_is_not_there_is_told_in_time() -> None:
    store = RedisStore(
        access_of(f"redis://127.0.0.1:{free_port()}", command_s=0.5), random.Random(1)
    )
    for call in (store.read(["a"]), store.write([Stored("a", 0, 0)], ttl_s=1.0), store.held()):
        with pytest.raises(StoreError) as refused:
            await call
        assert refused.value.trouble is Trouble.UNREACHABLE
    await store.stop()


def test_a_session_says_its_form_version_and_turn_first() -> None:
    assert msgspec.msgpack.decode(Stored("a", 3, 4).value)[:3] == [1, 3, 4]

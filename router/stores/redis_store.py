"""A store in Redis: one server, one behind Sentinel, or a Cluster; 6.2 or newer.

``redis`` is imported here alone. Keys, with their times to live, are listed in ``docs/routers.md``. What is
compared and set in one step is a script of a few lines, so that it costs one command; what is told to all
goes over one channel. A connection that fails is not tried again within a call: who calls knows better.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from redis import exceptions
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from typing_extensions import override

from router.stores.access import Kind
from router.stores.base import Lease, Store, StoreError, Trouble
from router.stores.scripts import HOLD, PUT, SAY, SWAP, Script
from router.tasks import spawn

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from router.stores.access import RedisAccess
    from router.stores.base import Listener, Row

_CONNECTIONS_MAX: Final = 16
_AT_ONCE: Final = 64
_SILENT_S: Final = 3.0
"""This router's own words come back more often than that; a channel that is silent for longer is dead."""

_AGAIN_S: Final = (0.1, 1.5)
"""Before listening is tried again, drawn from these: routers that lost a store do not return at once."""

_WORDS: Final = (
    ("OOM", Trouble.FULL),
    ("READONLY", Trouble.READ_ONLY),
    ("MISCONF", Trouble.READ_ONLY),
    ("NOREPLICAS", Trouble.READ_ONLY),
    ("NOPERM", Trouble.REFUSED),
    ("WRONGPASS", Trouble.REFUSED),
    ("NOAUTH", Trouble.REFUSED),
    ("No permission", Trouble.REFUSED),
    ("permission", Trouble.REFUSED),
    ("CLUSTERDOWN", Trouble.UNREACHABLE),
    ("LOADING", Trouble.UNREACHABLE),
    ("MASTERDOWN", Trouble.UNREACHABLE),
)


def trouble_of(failure: BaseException) -> Trouble:
    """What an error of the client library means."""
    if isinstance(failure, (TimeoutError, exceptions.TimeoutError)):
        return Trouble.TIMEOUT
    if isinstance(failure, exceptions.AuthenticationError):
        return Trouble.REFUSED
    text = str(failure)
    for word, trouble in _WORDS:
        if word in text:
            return trouble
    is_gone = isinstance(
        failure, (OSError, exceptions.ConnectionError, exceptions.ClusterDownError)
    )
    is_gone = is_gone or isinstance(failure, exceptions.RedisClusterException)
    return Trouble.UNREACHABLE if is_gone else Trouble.FAULT


class RedisStore(Store):
    """One router's way to Redis; ``dice`` spread the tries of many."""

    def __init__(self, access: RedisAccess, dice: random.Random) -> None:
        self._access = access
        self._dice = dice
        self._prefix = f"{access.prefix}:v1:"
        self._channel = f"{self._prefix}feed"
        self._client: Any = (
            None  # the library types a client of one server and one of a cluster apart
        )
        self._listening: asyncio.Task[None] | None = None
        self.n_commands = 0

    @override
    async def start(self, listener: Listener) -> None:
        self._listening = spawn(self._listen(listener), name="redis-feed")

    @override
    async def stop(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening
            self._listening = None
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                await _closed(client)

    # Sessions

    @override
    async def read(self, keys: Sequence[str]) -> list[bytes | None]:
        if not keys:
            return []
        names = [self._pin(key) for key in keys]
        async with self._asked() as client:
            if self._access.kind is Kind.CLUSTER:
                self.n_commands += len(names)
                return list(await _together([partial(client.get, n) for n in names]))
            self.n_commands += 1
            found: list[bytes | None] = await client.mget(names)
            return found

    @override
    async def write(self, rows: Sequence[Row], *, ttl_s: float) -> list[bytes | None]:
        calls = [
            (self._pin(row.key), (row.value, row.version, row.turn, _ms(ttl_s))) for row in rows
        ]
        found = await self._run_all(PUT, calls)
        return [None if stood is None else bytes(stood) for stood in found]

    @override
    async def swap(self, row: Row, *, expected: int | None, ttl_s: float) -> bytes | None:
        wanted = -1 if expected is None else expected
        stood = await self._run(SWAP, [self._pin(row.key)], row.value, wanted, _ms(ttl_s))
        return None if stood is None else bytes(stood)

    # Words

    @override
    async def say(self, router: str, vector: bytes, message: bytes, *, ttl_s: float) -> bool:
        name = f"{self._prefix}load:{router}"
        was_there, fault = await self._run(SAY, [name], vector, _ms(ttl_s), self._channel, message)
        if fault:
            text = bytes(fault).decode("utf-8", "replace")
            raise StoreError(trouble_of(exceptions.ResponseError(text)), text)
        return bool(was_there)

    # What holds for a while

    @override
    async def hold(self, name: str, value: bytes, *, expected: bytes | None, ttl_s: float) -> bool:
        keys = [self._held(name), self._held("")]
        return bool(await self._run(HOLD, keys, value, expected or b"", _ms(ttl_s), name))

    @override
    async def held(self) -> list[Lease]:
        async with self._asked() as client:
            self.n_commands += 1
            names = sorted(name.decode() for name in await client.smembers(self._held("")))
            calls: list[Callable[[], Awaitable[Any]]] = []
            for name in names:
                calls += [
                    partial(client.get, self._held(name)),
                    partial(client.pttl, self._held(name)),
                ]
            self.n_commands += len(calls)
            found = await _together(calls)
        rows = zip(names, found[::2], found[1::2], strict=True)
        return [Lease(name, value, left / 1e3) for name, value, left in rows if value and left > 0]

    # Listening

    async def _listen(self, listener: Listener) -> None:
        """Hear what is said for as long as it can be heard, and begin anew."""
        while True:
            try:
                await self._hear(listener)
            except Exception as failure:  # noqa: BLE001 - whatever it is, others are to be heard again
                listener.on_deaf(StoreError(trouble_of(failure), str(failure)))
                await self._let_go()
            await asyncio.sleep(self._dice.uniform(*_AGAIN_S))

    async def _hear(self, listener: Listener) -> None:
        client, ears = await self._opened(), None
        if self._access.kind is Kind.CLUSTER:  # what is said anywhere is heard at any node
            node = client.get_random_node()
            client = ears = Redis(host=node.host, port=node.port, **_options_of(self._access))
        feed = client.pubsub()
        try:
            await feed.subscribe(self._channel)
            while True:
                message = await feed.get_message(timeout=_SILENT_S)
                if message is None:
                    raise TimeoutError(
                        f"no word came in {_SILENT_S:g} s, not even this router's own"
                    )
                if message["type"] == "message":
                    listener.on_message(message["data"])
                elif message["type"] == "subscribe":
                    listener.on_listening()
        finally:
            with suppress(Exception):
                await feed.aclose()
                if ears is not None:
                    await ears.aclose()

    # Asking

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[Any]:
        """The client, for one question; what fails is a ``StoreError``."""
        try:
            async with asyncio.timeout(self._access.command_s):
                yield await self._opened()
        except (exceptions.RedisError, OSError, TimeoutError) as failure:
            trouble = trouble_of(failure)
            is_one = self._access.kind is Kind.SERVER
            if trouble is Trouble.READ_ONLY and not is_one:  # another one is written to by now
                await self._let_go()
            raise StoreError(trouble, str(failure) or type(failure).__name__) from failure

    async def _run(self, script: Script, keys: list[str], *args: Any) -> Any:  # noqa: ANN401  (what a script answers)
        async with self._asked() as client:
            self.n_commands += 1
            return await _evaluated(client, script, keys, args)

    async def _run_all(self, script: Script, calls: list[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        """One script for each key; all of them in one round trip, where one server has them."""
        async with self._asked() as client:
            self.n_commands += len(calls)
            if self._access.kind is Kind.CLUSTER:
                return await _together(
                    [partial(_evaluated, client, script, [key], args) for key, args in calls]
                )
            try:
                return await _piped(client, script, calls)
            except exceptions.NoScriptError:
                await client.script_load(script.text)
                return await _piped(client, script, calls)

    async def _opened(self) -> Any:  # noqa: ANN401
        if self._client is None:
            self._client = client_of(self._access)
            if self._access.kind is Kind.CLUSTER:
                await self._client.initialize()
        return self._client

    async def _let_go(self) -> None:
        """Close what is open: the next question finds out anew who answers."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                await _closed(client)

    def _pin(self, key: str) -> str:
        return f"{self._prefix}pin:{key}"

    def _held(self, name: str) -> str:
        return f"{self._prefix}{{held}}:{name}"


def client_of(access: RedisAccess) -> Any:  # noqa: ANN401
    """A client that gives up at once where it cannot go on; it connects when it is asked first."""
    once, options = Retry(NoBackoff(), 0), _options_of(access)
    if access.kind is Kind.CLUSTER:
        nodes = [ClusterNode(host, port) for host, port in access.places]
        return RedisCluster(
            startup_nodes=nodes,
            retry=once,
            max_connections=_CONNECTIONS_MAX,
            require_full_coverage=False,
            **options,
        )
    options |= {"retry": once, "max_connections": _CONNECTIONS_MAX, "db": access.db}
    if access.kind is Kind.SENTINEL:
        make: Any = Sentinel
        sentinels = make(
            access.places,
            sentinel_kwargs={
                "socket_timeout": access.command_s,
                "socket_connect_timeout": access.command_s,
                "retry": once,
                "driver_info": None,
                **access.tls_options,
            },
        )
        return sentinels.master_for(access.master, **options)
    if access.unix_path:
        return Redis(unix_socket_path=access.unix_path, **options)
    host, port = access.places[0]
    return Redis(host=host, port=port, **options)


async def _closed(client: Any) -> None:  # noqa: ANN401
    """Close a client, and those by which it asked sentinels."""
    await client.aclose()
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    for sentinel in () if manager is None else manager.sentinels:
        await sentinel.aclose()


def _options_of(access: RedisAccess) -> dict[str, Any]:
    return {
        "username": access.username,
        "password": access.password,
        "socket_timeout": access.command_s,
        "socket_connect_timeout": access.command_s,
        "protocol": 2,
        "driver_info": None,  # CLIENT SETINFO is refused by 6.2, and by a user who may do little
        **access.tls_options,
    }


async def _evaluated(client: Any, script: Script, keys: list[str], args: tuple[Any, ...]) -> Any:  # noqa: ANN401
    try:
        return await client.evalsha(script.sha, len(keys), *keys, *args)
    except exceptions.NoScriptError:
        return await client.eval(script.text, len(keys), *keys, *args)


async def _piped(
    client: Any,  # noqa: ANN401
    script: Script,
    calls: list[tuple[str, tuple[Any, ...]]],
) -> list[Any]:
    async with client.pipeline(transaction=False) as pipe:
        for key, args in calls:
            pipe.evalsha(script.sha, 1, key, *args)
        return list(await pipe.execute())


async def _together(calls: list[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """The answers to all, so many asked at once."""
    found: list[Any] = []
    for at in range(0, len(calls), _AT_ONCE):
        found += await asyncio.gather(*[call() for call in calls[at : at + _AT_ONCE]])
    return found


def _ms(duration_s: float) -> int:
    return max(1, round(duration_s * 1e3))

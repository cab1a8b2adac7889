"""A store in memory, shared by the routers of one process: what a Redis does, without one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec
from typing_extensions import override

from router.stores.base import Lease, Listener, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from router.stores.base import Row


class _Order(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """How every stored session begins."""

    form: int
    version: int
    turn: int


_ORDER: Final = msgspec.msgpack.Decoder(_Order)


@dataclass(slots=True)
class Hub:
    """What the stores of one process share; at most ``values_max`` values, the longest unused go first."""

    now_s: Callable[[], float]
    values_max: int = 1_000_000
    values: OrderedDict[str, tuple[bytes, float]] = field(default_factory=OrderedDict)
    listeners: list[Listener] = field(default_factory=list)

    def get(self, key: str) -> bytes | None:
        """A value that still holds."""
        row = self.values.get(key)
        if row is None:
            return None
        if row[1] <= self.now_s():
            del self.values[key]
            return None
        return row[0]

    def put(self, key: str, value: bytes, ttl_s: float) -> None:
        """Keep a value for so long."""
        self.values[key] = value, self.now_s() + ttl_s
        self.values.move_to_end(key)
        if len(self.values) > self.values_max:
            self.values.popitem(last=False)


class MemoryStore(Store):
    """One router's way to a hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._listener: Listener | None = None
        self.n_commands = 0

    @override
    async def start(self, listener: Listener) -> None:
        self._listener = listener
        self._hub.listeners.append(listener)
        asyncio.get_running_loop().call_soon(listener.on_listening)

    @override
    async def stop(self) -> None:
        if self._listener is not None:
            self._hub.listeners.remove(self._listener)
            self._listener = None

    @override
    async def read(self, keys: Sequence[str]) -> list[bytes | None]:
        return [self._hub.get(_pin(key)) for key in keys]

    @override
    async def write(self, rows: Sequence[Row], *, ttl_s: float) -> list[bytes | None]:
        found: list[bytes | None] = []
        for row in rows:
            known = self._hub.get(_pin(row.key))
            if known is not None and order_of(known) > (row.version, row.turn):
                found.append(known)
            else:
                self._hub.put(_pin(row.key), row.value, ttl_s)
                found.append(None)
        return found

    @override
    async def say(self, router: str, vector: bytes, message: bytes, *, ttl_s: float) -> bool:
        loop = asyncio.get_running_loop()
        for listener in self._hub.listeners:
            loop.call_soon(listener.on_message, message)
        was_there = self._hub.get(f"load:{router}") is not None
        self._hub.put(f"load:{router}", vector, ttl_s)
        return was_there

    @override
    async def swap(self, row: Row, *, expected: int | None, ttl_s: float) -> bytes | None:
        known = self._hub.get(_pin(row.key))
        if (None if known is None else order_of(known)[0]) != expected:
            return known or b""
        self._hub.put(_pin(row.key), row.value, ttl_s)
        return None

    @override
    async def hold(self, name: str, value: bytes, *, expected: bytes | None, ttl_s: float) -> bool:
        key = f"held:{name}"
        if self._hub.get(key) != expected:
            return False
        if value:
            self._hub.put(key, value, ttl_s)
        else:
            self._hub.values.pop(key, None)
        return True

    @override
    async def held(self) -> list[Lease]:
        names = [key for key in self._hub.values if key.startswith("held:")]
        found = [(key, self._hub.get(key)) for key in names]
        return [
            Lease(key.removeprefix("held:"), value, self._hub.values[key][1] - self._hub.now_s())
            for key, value in found
            if value is not None
        ]


def order_of(value: bytes) -> tuple[int, int]:
    """By what a stored session is newer or older than another; below all others if it cannot be read."""
    try:
        order = _ORDER.decode(value)
    except msgspec.DecodeError:
        return -1, -1
    return order.version, order.turn


def _pin(key: str) -> str:
    return f"pin:{key}"

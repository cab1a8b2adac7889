"""The way to the sibling workers of one router: a store that has no third party behind it.

What a worker has in flight stands in its row of the shared board, where the others read it; changes of sessions
are datagrams, each numbered. A sibling that does not keep up loses some, and finds out by the numbers: it then
asks for all sessions. Nothing is kept here, so nobody is answered what a session is: each worker knows all.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from router.stores.base import Lease, Listener, Store, StoreError, Trouble
from router.workers.board import Stage
from router.workers.place import DATAGRAM_BYTES_MAX, address

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from router.stores.base import Row
    from router.workers.place import Place

_HEAD: Final = struct.Struct("<16sIQ")  # token, serial, number of the datagram
_READ_S: Final = 0.2
_DATAGRAMS_A_TIME: Final = 64
_HEARING: Final = (Stage.LISTENING, Stage.READY, Stage.LEAVING)


class SiblingsStore(Store):
    """One worker's way to its siblings.

    ``missed`` is called with the serial of a sibling of whose words some were lost; ``n_unheard`` counts words
    that a sibling had no room for.
    """

    def __init__(self, place: Place, missed: Callable[[int], None]) -> None:
        self._place = place
        self._missed = missed
        self._listener: Listener | None = None
        self._numbers: dict[int, int] = {}
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._told: dict[int, bytes] = {}
        self.n_commands = 0
        self.n_unheard = 0

    @override
    async def start(self, listener: Listener) -> None:
        self._listener = listener
        loop = asyncio.get_running_loop()
        loop.add_reader(self._place.words.fileno(), self._hear)
        listener.on_listening()
        self._read_rows()

    @override
    async def stop(self) -> None:
        self._listener = None
        if self._timer is not None:
            self._timer.cancel()
        with suppress(OSError, ValueError):
            asyncio.get_running_loop().remove_reader(self._place.words.fileno())

    @override
    async def read(self, keys: Sequence[str]) -> list[bytes | None]:
        return [None] * len(keys)

    @override
    async def write(self, rows: Sequence[Row], *, ttl_s: float) -> list[bytes | None]:
        return [None] * len(rows)

    @override
    async def say(self, router: str, vector: bytes, message: bytes, *, ttl_s: float) -> bool:
        place = self._place
        if message is not vector:  # sessions have changed
            self._number += 1
            self._send(_HEAD.pack(place.board.token, place.serial, self._number) + message)
        # Only now: who reads this row has the datagram before it, and takes it first.
        if not place.board.keep_vector(place.slot, vector):
            raise StoreError(Trouble.FULL, "more replicas than a worker's row holds")
        return True

    @override
    async def swap(self, row: Row, *, expected: int | None, ttl_s: float) -> bytes | None:
        return None

    @override
    async def hold(self, name: str, value: bytes, *, expected: bytes | None, ttl_s: float) -> bool:
        return False

    @override
    async def held(self) -> list[Lease]:
        return []

    def _send(self, datagram: bytes) -> None:
        place = self._place
        for row in place.siblings(*_HEARING):
            self.n_commands += 1
            try:
                place.words.sendto(datagram, address(place.board.token, row.serial, "words"))
            except OSError:  # its queue is full, or it has just gone; it finds out by the number
                self.n_unheard += 1

    def _hear(self) -> None:
        """Take the datagrams that have come, a few at a time."""
        token, listener = self._place.board.token, self._listener
        for _ in range(_DATAGRAMS_A_TIME):
            try:
                data = self._place.words.recv(2 * DATAGRAM_BYTES_MAX, socket.MSG_DONTWAIT)
            except OSError:
                return
            if len(data) < _HEAD.size or listener is None:
                continue
            said, serial, number = _HEAD.unpack_from(data)
            if said != token:
                continue
            before = self._numbers.get(serial)
            self._numbers[serial] = number
            listener.on_message(data[_HEAD.size :])
            if before is not None and number != before + 1:
                self._missed(serial)

    def _read_rows(self) -> None:
        """Read what siblings have in flight; what they said of sessions before comes first."""
        place, listener = self._place, self._listener
        if listener is None:
            return
        self._timer = asyncio.get_running_loop().call_later(_READ_S, self._read_rows)
        rows = place.siblings(*_HEARING)
        vectors = [(row.serial, place.board.vector(row.slot)) for row in rows]
        self._hear()
        serials = {row.serial for row in rows}
        for known in (self._numbers, self._told):
            for serial in known.keys() - serials:
                del known[serial]
        for serial, vector in vectors:
            if vector is not None and self._told.get(serial) != vector:
                self._told[serial] = vector
                listener.on_message(vector)

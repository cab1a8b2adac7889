"""Replicas' names to addresses, in threads of its own: a name that hangs holds up its own replica only.

The system's resolver waits for as long as it likes and cannot be cancelled. Asked on the loop's default
threads, one slow name would soon hold all of them, and with them the files and all that runs there.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from router.clock import now_s as real_now_s

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

_THREADS_MAX: Final = 16
_NAMES_MAX: Final = 4_096
_FRESH_S: Final = 1.0

_P = TypeVar("_P", bound=asyncio.BaseProtocol)


def _by_system(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(row[4][0]) for row in found))


class Lookups:
    """Looks names up, each at most once at a time; what was found counts for a second.

    ``look_up`` runs in a thread, raises OSError, and answers the addresses of a name in order.
    """

    def __init__(
        self,
        look_up: Callable[[str], list[str]] = _by_system,
        *,
        now_s: Callable[[], float] = real_now_s,
        threads_max: int = _THREADS_MAX,
        names_max: int = _NAMES_MAX,
    ) -> None:
        self._look_up = look_up
        self._now_s = now_s
        self._names_max = names_max
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix="lookup")
        self._running: dict[str, asyncio.Future[list[str]]] = {}
        self._found: OrderedDict[str, tuple[float, list[str]]] = OrderedDict()

    async def addresses(self, host: str) -> list[str]:
        """The addresses of a name, at least one; an address stands for itself.

        Waits for as long as the system's resolver does: the caller has the time-out, which leaves the
        lookup running for who asks next.

        Raises:
            OSError: it has none, or more names are being looked up than may be.
            UnicodeError: it is no name.
        """
        if _is_address(host):
            return [host]
        found = self._found.get(host)
        if found is not None and self._now_s() - found[0] <= _FRESH_S:
            return found[1]
        running = self._running.get(host)
        if running is None:
            if len(self._running) >= self._names_max:
                raise OSError(errno.EAGAIN, "too many names are being looked up")
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._threads, self._look_up, host)
            self._running[host] = running
            running.add_done_callback(lambda ended: self._ended(host, ended))
        return await asyncio.shield(running)

    def _ended(self, host: str, ended: asyncio.Future[list[str]]) -> None:
        self._running.pop(host, None)
        if ended.cancelled() or ended.exception() is not None:
            return
        self._found[host] = self._now_s(), ended.result()
        self._found.move_to_end(host)
        if len(self._found) > self._names_max:
            self._found.popitem(last=False)

    async def connect(
        self,
        protocol: Callable[[], _P],
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> _P:
        """Connect to the first address of a name that lets itself be connected to.

        Raises:
            OSError: none does, or the name has none.
            UnicodeError: it is no name.
        """
        loop = asyncio.get_running_loop()
        fault: OSError | None = None
        more: dict[str, Any] = {} if tls is None else {"ssl": tls, "server_hostname": host}
        for address in await self.addresses(host):
            try:
                _, made = await loop.create_connection(protocol, address, port, **more)
            except OSError as failure:
                fault = failure
            else:
                return made
        raise fault or OSError(errno.EADDRNOTAVAIL, f"{host} has no address")

    def close(self) -> None:
        """Start no more lookups; those that hang are not waited for here."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True

"""Files that are read again when they change: tenants, certificates.

A change is seen by the file's identity and times, once a second, or told by SIGHUP. What cannot be
used is logged in one line and changes nothing; whatever is wrong with it, the files are looked at again.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from router.errors import ConfigError
from router.tasks import spawn
from router.tenants.reading import FILE_BYTES_MAX, read_tenants

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from router.obs.metrics import Counts
    from router.tenants.model import Tenant

_log = logging.getLogger("homeport.files")
_INTERVAL_S: Final = 1.0

Stamp = tuple[tuple[int, int, int, int] | None, ...]


def tenants_in(path: str) -> list[Tenant]:
    """The tenants in a file.

    Raises:
        ConfigError: it cannot be read, or says something impossible.
    """
    try:
        with Path(path).open("rb") as opened:
            data = opened.read(FILE_BYTES_MAX + 1)
    except OSError as failure:
        raise ConfigError(f"tenants file {path}: {failure.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"tenants file {path}: is larger than {FILE_BYTES_MAX >> 20} MiB")
    return read_tenants(data, path)


@dataclass(slots=True, frozen=True)
class Watched:
    """Files that are read together. ``name`` is theirs in logs and metrics.

    ``read`` runs in a thread and raises ConfigError where they cannot be used; what it answers is
    given to ``use`` on the event loop.
    """

    name: str
    paths: tuple[str, ...]
    read: Callable[[], Any]
    use: Callable[[Any], str]
    """Answers what is worth logging of it, as ``key=value`` words."""
    looked_at: Callable[[bool], None] | None = None
    """Told after each round whether the files can be used as they are."""


class Reloader:
    """Looks after watched files from :meth:`start` to :meth:`stop`."""

    def __init__(
        self, watched: Sequence[Watched], counts: Counts, *, interval_s: float = _INTERVAL_S
    ) -> None:
        self._watched = tuple(watched)
        self._counts = counts
        self._interval_s = interval_s
        self._stamps = [_stamp(group.paths) for group in watched]
        self._is_asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        for group in watched:
            counts.unusable_files[group.name] = False

    @property
    def is_watching(self) -> bool:
        """There are files to look after."""
        return bool(self._watched)

    def start(self) -> None:
        """Begin to watch; what was read before this object was made counts as read."""
        if self._watched:
            self._task = spawn(self._watch(), name="reload")

    def stop(self) -> None:
        """Watch no more."""
        if self._task is not None:
            self._task.cancel()

    def ask(self) -> None:
        """Read everything again now, changed or not."""
        _log.info("reload-asked files=%d", len(self._watched))
        self._is_asked.set()

    async def _watch(self) -> None:
        while True:
            is_asked = await self._waited()
            for index, group in enumerate(self._watched):
                stamp = await asyncio.to_thread(_stamp, group.paths)
                if is_asked or stamp != self._stamps[index]:
                    self._stamps[index] = stamp
                    await self._reload(group)
                if group.looked_at is not None:
                    group.looked_at(not self._counts.unusable_files[group.name])

    async def _waited(self) -> bool:
        """Wait for the next round; True if somebody asked for it."""
        try:
            async with asyncio.timeout(self._interval_s):
                await self._is_asked.wait()
        except TimeoutError:
            return False
        self._is_asked.clear()
        return True

    async def _reload(self, group: Watched) -> None:
        counts = self._counts
        try:
            said = group.use(await asyncio.to_thread(group.read))
        except Exception as failure:  # noqa: BLE001  (a file that nobody thought of must not end the watch)
            counts.reloads[group.name, "refused"] += 1
            counts.unusable_files[group.name] = True
            is_told = isinstance(failure, ConfigError)
            reason = f"{failure}" if is_told else f"{type(failure).__name__}: {failure}"[:300]
            _log.warning("reload-refused files=%s kept=previous reason=%r", group.name, reason)
            return
        counts.reloads[group.name, "done"] += 1
        counts.unusable_files[group.name] = False
        _log.info("reloaded files=%s %s", group.name, said)


def _stamp(paths: Sequence[str]) -> Stamp:
    """What tells a file from the one that was there before; None for one that is not there."""
    stamps: list[tuple[int, int, int, int] | None] = []
    for path in paths:
        try:
            stat = Path(path).stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size))
    return tuple(stamps)

"""Recordings in memory: a journal that keeps what it is told, and a core that tells it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from router.core import CoreParameters
from router.policy import registry
from router.recording.chains import ChainMemory
from router.recording.codec import Packer, Recording, framed
from router.recording.recorded_core import RecordedCore
from router.recording.records import Header
from router.recording.seal import Seal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.recording.records import Record

SALT = b"a salt of the tests"


class Kept:
    """A journal that is a list."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.stopped = ""

    @property
    def is_open(self) -> bool:
        return not self.stopped

    def write(self, record: Record) -> None:
        self.records.append(record)

    def stop(self, reason: str) -> None:
        self.stopped = self.stopped or reason


def recorded(
    policy: str = "home",
    *,
    seed: int = 1,
    parameters: CoreParameters | None = None,
    links_max: int = 10_000,
) -> tuple[RecordedCore, Kept]:
    """A core that records, and its journal with the header in it."""
    journal = Kept()
    parameters = parameters or CoreParameters()
    journal.write(Header("homeport test", policy, seed, parameters, links_max))
    core = RecordedCore(
        registry.make(policy),
        random.Random(seed),
        parameters,
        seal=Seal(SALT),
        journal=journal,
        chains=ChainMemory(links_max),
    )
    return core, journal


def packed(records: Iterable[Record], *, batch: int = 200, end: str | None = "closed") -> bytes:
    """Records as the bytes of a file, in batches of so many; not ended if ``end`` is None."""
    packer = Packer()
    frames = [framed(record) for record in records]
    parts = [packer.batch(b"".join(frames[at : at + batch])) for at in range(0, len(frames), batch)]
    if end is not None:
        parts.append(packer.end(end))
    return b"".join(parts)


def reading(data: bytes, *, step: int = 1000) -> Recording:
    """A file that is read a few bytes at a time."""
    return Recording(data[at : at + step] for at in range(0, len(data), step))

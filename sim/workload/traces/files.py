"""The files of a recording: a folder, one file, or an archive; packed or not, streamed and bounded.

What a file is, is seen from its first bytes, not from its name. Nothing is unpacked to disk.
"""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from typing_extensions import override

from sim.workload.traces.errors import TraceError, clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SUFFIXES: Final = (".json", ".jsonl", ".csv", ".rec")
"""Of the files in a folder or an archive that are read; others are passed over."""

_STEP_BYTES: Final = 1 << 20
_PACKED: Final = (".xz", ".gz")
_XZ: Final = b"\xfd7zXZ\x00"
_GZIP: Final = b"\x1f\x8b"
_TAR_MARK: Final = slice(257, 262)
_HEAD_BYTES: Final = 512
_BROKEN: Final = (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may be read.

    ``file_bytes_max`` of a file that is one JSON object, ``line_bytes_max`` of one that is read by
    lines; ``total_bytes_max`` of everything, unpacked; ``members_max`` files of one archive or folder.
    """

    file_bytes_max: int = 64 << 20
    line_bytes_max: int = 32 << 20
    total_bytes_max: int = 16 << 30
    members_max: int = 200_000


_USUAL: Final = Bounds()


class Budget:
    """Counts the bytes of all members and tells whoever wants to know."""

    def __init__(self, bounds: Bounds, on_bytes: Callable[[int], None] | None = None) -> None:
        self.bounds = bounds
        self._n_bytes = 0
        self._on_bytes = on_bytes

    def spend(self, n_bytes: int, name: str) -> None:
        """Count some more.

        Raises:
            TraceError: it is too much.
        """
        self._n_bytes += n_bytes
        most = self.bounds.total_bytes_max
        if self._n_bytes > most:
            raise TraceError(f"{name}: over {most} bytes in all; split the data")
        if self._on_bytes is not None:
            self._on_bytes(self._n_bytes)


class Member:
    """One file; it can be read once, and only before the next one is asked for.

    ``name`` is for messages, ``file_name`` the file's own name, without folders.
    """

    def __init__(self, name: str, file_name: str, stream: _Readable, budget: Budget) -> None:
        self.name = clean(name)
        self.file_name = file_name
        self._stream = stream
        self._budget = budget
        self._held = b""

    def peek(self) -> bytes:
        """The first bytes, at most a step of them; they are read again later."""
        if not self._held:
            self._held = self._read()
        return self._held

    def chunks(self) -> Iterator[bytes]:
        """All bytes, cut anywhere.

        Raises:
            TraceError: the file is damaged, cut off, or too much in all.
        """
        while chunk := self._read():
            yield chunk

    def whole(self) -> bytes:
        """All bytes.

        Raises:
            TraceError: as ``chunks``, or there are too many.
        """
        most = self._budget.bounds.file_bytes_max
        parts: list[bytes] = []
        n_bytes = 0
        for chunk in self.chunks():
            n_bytes += len(chunk)
            if n_bytes > most:
                raise TraceError(f"{self.name}: over {most} bytes")
            parts.append(chunk)
        return b"".join(parts)

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """The lines that are not blank, each with its place for messages.

        Raises:
            TraceError: as ``chunks``, or a line is too long.
        """
        most = self._budget.bounds.line_bytes_max
        number, rest = 0, b""
        for chunk in self.chunks():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                number += 1
                if line := line.strip():
                    yield f"{self.name}: line {number}", line
            if len(rest) > most:
                raise TraceError(f"{self.name}: line {number + 1}: over {most} bytes")
        if rest := rest.strip():
            yield f"{self.name}: line {number + 1}", rest

    def _read(self) -> bytes:
        if self._held:
            held, self._held = self._held, b""
            return held
        try:
            chunk = self._stream.read(_STEP_BYTES)
        except _BROKEN as failure:
            raise _broken(self.name, failure) from failure
        self._budget.spend(len(chunk), self.name)
        return chunk


def members(
    path: Path,
    on_bytes: Callable[[int], None] | None = None,
    *,
    bounds: Bounds = _USUAL,
) -> Iterator[Member]:
    """The files under ``path``, in the order of their names or of the archive.

    ``on_bytes`` hears now and then how many bytes were read in all.

    Raises:
        TraceError: ``path`` is missing, cannot be read, or is a damaged or cut off archive.
    """
    budget = Budget(bounds, on_bytes)
    try:
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if _is_wanted(file.name))
            if len(files) > bounds.members_max:
                raise _too_many(str(path), bounds)
            for file in files:
                if file.is_file():
                    yield from _file(file, budget)
        elif path.is_file():
            yield from _file(path, budget)
        else:
            raise TraceError(f"{clean(str(path))}: no such file or folder")
    except OSError as failure:
        raise _broken(str(path), failure) from failure


def _file(path: Path, budget: Budget) -> Iterator[Member]:
    name = str(path)
    try:
        with path.open("rb") as opened:
            stream = _Rejoined(_unpacked(opened))
            if stream.head[_TAR_MARK] == b"ustar":
                yield from _archive(name, stream, budget)
            else:
                yield Member(name, path.name, stream, budget)
    except _BROKEN as failure:
        raise _broken(name, failure) from failure


def _unpacked(opened: io.BufferedReader) -> io.BufferedReader:
    head = opened.peek(len(_XZ))
    if head.startswith(_XZ):
        return io.BufferedReader(lzma.open(opened), _STEP_BYTES)
    if head.startswith(_GZIP):
        return io.BufferedReader(gzip.open(opened), _STEP_BYTES)
    return opened


class _Rejoined(io.RawIOBase):
    """A stream whose ``head`` is seen before it is read."""

    def __init__(self, stream: _Readable) -> None:
        super().__init__()
        self._stream = stream
        self.head = self._unread = stream.read(_HEAD_BYTES)

    @override
    def read(self, size: int = -1, /) -> bytes:
        """The next bytes; fewer than asked for only at the end."""
        begun = self._unread if size < 0 else self._unread[:size]
        self._unread = self._unread[len(begun) :]
        return begun + self._stream.read(size if size < 0 else size - len(begun))


def _archive(path: str, stream: _Rejoined, budget: Budget) -> Iterator[Member]:
    n_members = 0
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for entry in archive:
            n_members += 1
            if n_members > budget.bounds.members_max:
                raise _too_many(path, budget.bounds)
            if entry.isfile() and _is_wanted(entry.name):
                content = archive.extractfile(entry)
                assert content is not None, entry.name
                yield Member(
                    f"{path}: {entry.name}", entry.name.rsplit("/", 1)[-1], content, budget
                )
    if stream.read(1):  # the rest of the last block; a cut off packing is found here
        while stream.read(_STEP_BYTES):
            pass


def _is_wanted(name: str) -> bool:
    for packed in _PACKED:
        name = name.removesuffix(packed)
    return name.endswith(SUFFIXES)


def _too_many(name: str, bounds: Bounds) -> TraceError:
    return TraceError(f"{clean(name)}: over {bounds.members_max} files; split the data")


def _broken(name: str, failure: BaseException) -> TraceError:
    why = getattr(failure, "strerror", None) or str(failure) or type(failure).__name__
    return TraceError(f"{clean(name)}: cannot be read: {clean(str(why))}")

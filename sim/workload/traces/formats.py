"""The table of formats, how each is recognised, and the one way to read any of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from sim.workload.traces import azure, lmcache, mooncake, recording, weka
from sim.workload.traces.errors import TraceError, clean, shown
from sim.workload.traces.files import members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from sim.workload.traces.files import Member
    from sim.workload.traces.model import RecordedWorkload

_KEY: Final = re.compile(rb'(?<!\\)"(\w{1,32})"\s*:')
_RECORDING: Final = b"homeport-recording "
_SHOWN_BYTES: Final = 24
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its reader, the suffix of its files, and what its first bytes have.

    ``keys``: JSON keys that all stand near the beginning; else ``opening``: the very first bytes.
    """

    read: Callable[[Iterable[Member]], RecordedWorkload]
    about: str
    keys: frozenset[bytes] = frozenset()
    opening: bytes = b""

    def is_of(self, head: bytes, keys: set[bytes]) -> bool:
        """Whether a file that begins with ``head``, with such JSON keys, is of this format."""
        return head.startswith(self.opening) if self.opening else self.keys <= keys


FORMATS: Final = {
    "weka": Format(
        weka.read, "Claude Code sessions (kv-cache-tester)", frozenset({b"block_size", b"requests"})
    ),
    "mooncake": Format(
        mooncake.read, "Mooncake requests", frozenset({b"input_length", b"output_length"})
    ),
    "lmcache": Format(lmcache.read, "LMCache agent sessions", frozenset({b"timestamp", b"input"})),
    "azure": Format(azure.read, "Azure LLM inference requests", opening=azure.HEADER),
    "recording": Format(recording.read, "homeport serve --record", opening=_RECORDING),
}


def read_workload(
    path: Path,
    *,
    format_name: str | None = None,
    share_heads: bool = False,
    on_bytes: Callable[[int], None] | None = None,
) -> RecordedWorkload:
    """The traffic under ``path``: a folder, a file or an archive, of a named or recognised format.

    ``share_heads`` lets Claude Code sessions with equal sizes of tools and system prompt begin
    alike; other formats tell themselves what sessions share. ``on_bytes`` hears how many bytes
    were read.

    Raises:
        TraceError: nothing there can be read; the message names file, place and value.
    """
    files = members(path, on_bytes)
    first = _first_filled(files)
    if first is None:
        raise TraceError(f"{clean(str(path))}: no trace in it")
    name = format_name or recognised(first.peek(), first.name)
    source = chain([first], files)
    if name not in FORMATS:
        raise TraceError(f"no format {name!r}; there are: {', '.join(FORMATS)}")
    if name == "weka":
        workload = weka.read(source, share_heads=share_heads)
    else:
        workload = FORMATS[name].read(source)
    if not len(workload.turns):
        raise TraceError(f"{clean(str(path))}: no request in it")
    return workload


def recognised(head: bytes, place: str) -> str:
    """The name of the format whose files begin like ``head``.

    Raises:
        TraceError: there is none.
    """
    head = head.removeprefix(_BOM)
    keys = set(_KEY.findall(head)) if head.lstrip().startswith(b"{") else set()
    for name, known in FORMATS.items():
        if known.is_of(head, keys):
            return name
    raise TraceError(
        f"{place}: no known format: it begins with {shown(head[:_SHOWN_BYTES])}; "
        f"there are: {', '.join(FORMATS)}"
    )


def _first_filled(files: Iterator[Member]) -> Member | None:
    return next((file for file in files if file.peek()), None)

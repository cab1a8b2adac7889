"""Reader of the Claude Code traces that kv-cache-tester publishes (one JSON object a session).

A folder, one ``.json`` file or a ``.tar.xz`` archive; an archive is streamed and never unpacked to
disk. Only main requests are kept: sub-agent markers are skipped, and a pause that held sub-agents
keeps their time. Ids are prefix ids of 64 tokens, local to their trace.
"""

from __future__ import annotations

import heapq
import lzma
import tarfile
from array import array
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec

from sim.rng import stream

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_TOKENS: Final = 64
CONTEXT_TOKENS_MAX: Final = 262_144
GAP_S_MAX: Final = 300.0
API_TIME_S: Final = 6.1
"""Stands for a missing ``api_time``: the median of the timed rows."""
_FILE_BYTES_MAX: Final = 64 * 1024 * 1024


class TraceError(ValueError):
    """A trace cannot be read; the message names the file and the place in it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How traces are cut: contexts at ``context_tokens_max``, pauses at ``gap_s_max``."""

    context_tokens_max: int = CONTEXT_TOKENS_MAX
    gap_s_max: float = GAP_S_MAX


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One main request; ``gap_s`` runs from the end of the answer before it."""

    input_tokens: int
    output_tokens: int
    block_ids: array[int]
    gap_s: float


@dataclass(frozen=True, slots=True)
class Trace:
    """One recorded session. The head is its tools and its system prompt, in tokens."""

    trace_id: str
    head_tokens: int
    rows: tuple[TraceRow, ...]


class _Row(msgspec.Struct, rename={"input_tokens": "in", "output_tokens": "out"}):
    t: float
    type: str
    input_tokens: int = -1
    output_tokens: int = 0
    hash_ids: list[int] = []
    api_time: float | None = None


class _File(msgspec.Struct):
    id: str
    block_size: int
    requests: list[_Row]
    tool_tokens: int = 0
    system_tokens: int = 0


_decoder = msgspec.json.Decoder(_File)


def read_traces(path: Path, *, limits: Limits | None = None) -> Iterator[Trace]:
    """Every trace under ``path``, in the order of the archive or of the file names.

    Raises:
        TraceError: ``path`` is missing, is no trace, or a trace in it is malformed.
    """
    for name, raw in _files(path):
        yield parse_trace(raw, name, limits=limits)


def sample_traces(
    path: Path, *, count: int, seed: int, limits: Limits | None = None
) -> tuple[Trace, ...]:
    """``count`` traces drawn by ``seed`` (fewer where there are fewer), in the drawn order.

    Only the drawn ones are decoded. The draw depends on the seed and the files' names alone.

    Raises:
        TraceError: as :func:`read_traces`, or there is no trace at all.
    """
    ranked: list[tuple[float, str, bytes]] = []
    for name, raw in _files(path):
        rank = -stream(seed, f"trace/{PurePosixPath(name).name}").random()
        if len(ranked) < count:
            heapq.heappush(ranked, (rank, name, raw))
        else:
            heapq.heappushpop(ranked, (rank, name, raw))
    if not ranked:
        raise TraceError(f"{path}: no trace in it; expected files named *.json")
    ranked.sort(reverse=True)
    return tuple(parse_trace(raw, name, limits=limits) for _, name, raw in ranked)


def parse_trace(raw: bytes, name: str, *, limits: Limits | None = None) -> Trace:
    """The trace in one file's bytes; ``name`` is used in errors.

    Raises:
        TraceError: the bytes are no trace.
    """
    limits = limits or Limits()
    try:
        decoded = _decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(f"{name}: not a Claude Code trace: {error}") from error
    if decoded.block_size != BLOCK_TOKENS:
        raise TraceError(f"{name}: block_size is {decoded.block_size}, expected {BLOCK_TOKENS}")
    rows: list[TraceRow] = []
    previous: _Row | None = None
    for index, row in enumerate(decoded.requests):
        if row.type == "subagent":
            continue
        _check(row, f"{name}: requests[{index}]")
        rows.append(_row(row, previous, limits))
        previous = row
    if not rows:
        raise TraceError(f"{name}: holds no main request")
    return Trace(decoded.id, decoded.tool_tokens + decoded.system_tokens, tuple(rows))


def _check(row: _Row, place: str) -> None:
    if row.type not in {"s", "n"}:
        raise TraceError(f"{place}: type is {row.type!r}, expected 's', 'n' or 'subagent'")
    if row.input_tokens < 1:
        raise TraceError(f"{place}: 'in' is missing or under 1")
    expected = row.input_tokens // BLOCK_TOKENS
    if len(row.hash_ids) != expected:
        raise TraceError(
            f"{place}: {len(row.hash_ids)} hash_ids for {row.input_tokens} tokens, "
            f"expected {expected} (one for each full block of {BLOCK_TOKENS})"
        )
    if row.hash_ids and not 0 <= min(row.hash_ids) <= max(row.hash_ids) < 1 << 32:
        raise TraceError(f"{place}: a hash id lies outside 0 to 4294967295")


def _row(row: _Row, previous: _Row | None, limits: Limits) -> TraceRow:
    input_tokens = min(row.input_tokens, limits.context_tokens_max)
    gap_s = 0.0
    if previous is not None:
        served_s = API_TIME_S if previous.api_time is None else previous.api_time
        gap_s = min(limits.gap_s_max, max(0.0, row.t - previous.t - served_s))
    return TraceRow(
        input_tokens=input_tokens,
        output_tokens=max(1, row.output_tokens),
        block_ids=array("I", row.hash_ids[: input_tokens // BLOCK_TOKENS]),
        gap_s=gap_s,
    )


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        for file in sorted(path.rglob("*.json")):
            yield str(file), _read(file)
    elif path.suffix == ".json":
        yield str(path), _read(path)
    elif path.is_file():
        yield from _archive(path)
    else:
        raise TraceError(f"{path}: no such file or folder")


def _read(file: Path) -> bytes:
    try:
        if file.stat().st_size > _FILE_BYTES_MAX:
            raise TraceError(f"{file}: larger than {_FILE_BYTES_MAX} bytes")
        return file.read_bytes()
    except OSError as error:
        raise TraceError(f"{file}: {error.strerror}") from error


def _archive(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                if not (member.isfile() and member.name.endswith(".json")):
                    continue
                if member.size > _FILE_BYTES_MAX:
                    raise TraceError(f"{path}: {member.name} is over {_FILE_BYTES_MAX} bytes")
                content = archive.extractfile(member)
                assert content is not None, member.name
                yield f"{path}: {member.name}", content.read()
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
        raise TraceError(f"{path}: not a readable archive of traces: {error}") from error

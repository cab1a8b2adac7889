"""One Claude Code trace as kv-cache-tester publishes it: its JSON, decoded strictly.

An object with ``requests``, which are main requests and markers of sub-agents, in order. A request
has an id for each full block of 64 tokens of its prompt; an id stands for its block and everything
before it, inside its trace.
"""

from __future__ import annotations

from array import array
from typing import Annotated, Final, Literal

import msgspec

from sim.workload.traces.errors import TraceError, shown
from sim.workload.traces.jsontext import (
    ID_MAX,
    Name,
    PromptTokens,
    Seconds,
    Tokens,
    decoded,
)

BLOCK_TOKENS: Final = 64
API_TIME_S: Final = 6.1
"""Stands for a missing ``api_time``: the median of the timed rows."""
_REQUESTS_MAX: Final = 100_000

Words = Annotated[list[Name], msgspec.Meta(max_length=64)]


class _Request(
    msgspec.Struct,
    forbid_unknown_fields=True,
    tag_field="type",
    rename={"input_tokens": "in", "output_tokens": "out"},
):
    """A request; ``t`` is its start, ``api_time`` how long the recorded provider took."""

    t: Seconds
    input_tokens: PromptTokens
    output_tokens: Tokens
    hash_ids: msgspec.Raw
    model: Name = ""
    input_types: Words = []
    output_types: Words = []
    stop: Name | None = None
    api_time: Seconds | None = None
    think_time: float | None = None
    ttft: Seconds | None = None

    @property
    def end_s(self) -> float:
        """When its answer ended, as far as that is known."""
        return self.t + (API_TIME_S if self.api_time is None else self.api_time)


class StreamedRequest(_Request, tag="s"):
    """A request whose answer was streamed."""


class WholeRequest(_Request, tag="n"):
    """A request whose answer came in one piece."""


Request = StreamedRequest | WholeRequest


class SubAgent(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="subagent"):
    """A sub-agent; ``t`` is when it completed, or when it was launched if nobody waits for it."""

    t: Seconds
    agent_id: Name
    status: Literal["completed", "async_launched"]
    requests: Annotated[list[Request], msgspec.Meta(max_length=_REQUESTS_MAX)]
    subagent_type: Name = ""
    duration_ms: Seconds | None = None
    total_tokens: int | None = None
    tool_use_count: int | None = None
    models: Words = []
    tool_tokens: Tokens = 0
    system_tokens: Tokens = 0

    @property
    def is_joined(self) -> bool:
        """Whether its parent waited for it."""
        return self.status == "completed"

    @property
    def begin_s(self) -> float:
        """When it began, on its parent's clock."""
        if self.requests and self.requests[0].t > 0.0:
            return self.requests[0].t  # later releases give inner times on the parent's clock
        return self.t - (self.duration_ms or 0.0) / 1e3 if self.is_joined else self.t


class WekaFile(msgspec.Struct, forbid_unknown_fields=True):
    """A whole trace; what is in ``totals`` is not read."""

    id: Name
    block_size: int
    requests: Annotated[list[Request | SubAgent], msgspec.Meta(max_length=_REQUESTS_MAX)]
    hash_id_scope: Literal["local"] = "local"
    models: Words = []
    tool_tokens: Tokens = 0
    system_tokens: Tokens = 0
    totals: msgspec.Raw = msgspec.Raw(b"{}")


_decoder: Final = msgspec.json.Decoder(WekaFile)
_ids_decoder: Final = msgspec.json.Decoder(list[int])


def parse_file(raw: bytes, place: str) -> WekaFile:
    """The trace in one file's bytes; ``place`` is used in errors.

    Raises:
        TraceError: the bytes are no trace, or its times go back.
    """
    trace = decoded(_decoder, raw, place)
    if trace.block_size != BLOCK_TOKENS:
        raise TraceError(f"{place}: block_size is {trace.block_size}, expected {BLOCK_TOKENS}")
    newest_s = 0.0
    has_main = False
    for i, row in enumerate(trace.requests):
        if isinstance(row, SubAgent):
            _check_order(row.requests, f"{place}: requests[{i}].requests")
            continue
        if row.t < newest_s:
            raise TraceError(f"{place}: requests[{i}].t: {row.t} is before {newest_s} above it")
        newest_s, has_main = row.t, True
    if not has_main:
        raise TraceError(f"{place}: holds no main request")
    return trace


def _check_order(rows: list[Request], place: str) -> None:
    for i in range(1, len(rows)):
        if rows[i].t < rows[i - 1].t:
            raise TraceError(f"{place}[{i}].t: {rows[i].t} is before {rows[i - 1].t} above it")


class BlockIds:
    """Reads the ids of one request after the other; what a request repeats is not parsed again.

    A prompt is nearly always the one before it and a little more, so most of a trace's text is
    compared as bytes, at a tenth of the time.
    """

    def __init__(self) -> None:
        self._body = b""
        self._n_ids = 0

    def read(self, row: Request, place: str) -> tuple[int, array[int]]:
        """How many leading ids are those of the request before, and the ids behind them.

        Raises:
            TraceError: they are no ids, or not one for each full block of the prompt.
        """
        text = bytes(row.hash_ids)
        if not text.startswith(b"["):
            raise _no_ids(text, place)
        body = text[1:-1].strip()
        cut, n_common = self._common(body)
        rest = body[cut:].removeprefix(b",")
        new = array("Q")
        if rest or n_common == 0 or cut < len(body):
            try:
                new = array("Q", _ids_decoder.decode(text[:1] + rest + text[-1:]))
            except (msgspec.DecodeError, OverflowError):
                raise _no_ids(text, place) from None
        n_ids = n_common + len(new)
        expected = row.input_tokens // BLOCK_TOKENS
        if n_ids != expected:
            raise TraceError(
                f"{place}: {n_ids} hash_ids for {row.input_tokens} tokens, "
                f"expected {expected} (one for each full block of {BLOCK_TOKENS})"
            )
        if new and max(new) > ID_MAX:
            raise TraceError(f"{place}.hash_ids: {max(new)} lies outside 0 to {ID_MAX}")
        self._body, self._n_ids = body, n_ids
        return n_common, new

    def _common(self, body: bytes) -> tuple[int, int]:
        """How much text is that of the request before, up to a whole id, and how many ids."""
        before = self._body
        if not before or not body:
            return 0, 0
        n = min(len(before), len(body))
        if not (body.startswith(before) or before.startswith(body)):
            n = _common_bytes(body, before, n)
        elif len(body) == len(before) or (body if len(body) > n else before)[n : n + 1] == b",":
            return n, self._n_ids - before.count(b",", n)
        cut = body.rfind(b",", 0, n)
        if cut <= 0:
            return 0, 0
        return cut, self._n_ids - before.count(b",", cut)


def _common_bytes(one: bytes, other: bytes, n: int) -> int:
    """How many leading bytes are equal, where not all ``n`` are."""
    low, high = 0, n - 1
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _no_ids(text: bytes, place: str) -> TraceError:
    try:
        ids = decoded(_ids_decoder, text, f"{place}.hash_ids")
    except TraceError as failure:
        return TraceError(str(failure).replace(".hash_ids: [", ".hash_ids[", 1))
    wrong = next((i for i in ids if not 0 <= i <= ID_MAX), text)
    return TraceError(f"{place}.hash_ids: {shown(wrong)} lies outside 0 to {ID_MAX}")

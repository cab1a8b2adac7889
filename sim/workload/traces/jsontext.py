"""Decodes JSON strictly; a mistake is told with its place and the value that stands there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import msgspec

from sim.workload.traces.errors import TraceError, clean, shown

if TYPE_CHECKING:
    from typing import Any

_T = TypeVar("_T")

TOKENS_MAX: Final = 1 << 24
"""Of one prompt or one answer: sixteen million, ten times the longest context there is."""
SECONDS_MAX: Final = 1e10
ID_MAX: Final = (1 << 63) - 1

Tokens = Annotated[int, msgspec.Meta(ge=0, le=TOKENS_MAX)]
PromptTokens = Annotated[int, msgspec.Meta(ge=1, le=TOKENS_MAX)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=SECONDS_MAX)]
Name = Annotated[str, msgspec.Meta(max_length=256)]

_PLACE: Final = re.compile(r" - at `\$([^`]*)`")
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


def decoded(decoder: msgspec.json.Decoder[_T], raw: bytes, place: str) -> _T:
    """What ``raw`` says.

    Raises:
        TraceError: it is not what the decoder expects.
    """
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as failure:
        raise TraceError(f"{place}: {_told(str(failure), raw)}") from failure


def _told(what: str, raw: bytes) -> str:
    """The message of a decoder, with the value it speaks of."""
    found = _PLACE.search(what)
    if found is None:
        return clean(what)
    where = found.group(1)
    said = f"{clean(where.lstrip('.'))}: {clean(what[: found.start()])}"
    try:
        value = msgspec.json.decode(raw)
        for name, index in _STEP.findall(where):
            value = value[name] if name else value[int(index)]
    except (msgspec.DecodeError, UnicodeError, RecursionError, LookupError, TypeError):
        return said
    return said if isinstance(value, dict | list) else f"{said}, got {_short(value)}"


def _short(value: Any) -> str:  # noqa: ANN401  (any JSON value)
    return shown(value)[:80]

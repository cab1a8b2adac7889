"""What can be wrong with a trace file."""

from __future__ import annotations

from typing import Final

_SHOWN_CHARS: Final = 80


class TraceError(ValueError):
    """A trace cannot be read; the message names the file, the place in it and the value."""


def shown(value: object) -> str:
    """A value as one short printable line."""
    return clean(repr(value))


def clean(text: str) -> str:
    """``text`` on one line: what cannot be printed is a question mark, what is long is cut."""
    line = "".join(letter if letter.isprintable() else "?" for letter in text[: _SHOWN_CHARS * 4])
    return line if len(line) <= _SHOWN_CHARS * 3 else line[: _SHOWN_CHARS * 3] + "..."

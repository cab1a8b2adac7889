"""What is made for every request is a row: read and written like a dataclass, and made in a fifth of its time."""

from __future__ import annotations

from msgspec import Struct


class Row(Struct):
    """The base of those; their annotations are for readers and type checkers, nothing decodes into them."""

"""What can be wrong with a recording."""

from __future__ import annotations


class RecordingError(Exception):
    """The bytes are no recording that can be read; the message says what, where, and what to do."""

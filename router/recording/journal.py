"""Where the records of a core go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from router.recording.records import Record


class Journal(Protocol):
    """Takes the records of one core, in order."""

    @property
    def is_open(self) -> bool:
        """It takes records; once it does not, it never will again."""

    def write(self, record: Record) -> None:
        """Take one record. Never raises and never waits."""

    def stop(self, reason: str) -> None:
        """Take no more: what comes next cannot be recorded."""

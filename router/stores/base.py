"""The port to a store that several routers share; ``tests/contract/test_stores.py`` is its contract.

A store keeps values for a while and passes messages on. It knows neither sessions nor fleets: of a value
it reads the first three members alone, by which newer is told from older. Nobody waits for it without a
limit of time, and nothing is lost but balance when it is away.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Trouble(StrEnum):
    """Why a store did not do what it was asked to."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    FULL = "full"
    """Its memory is used up and it may evict nothing: it takes nothing more, and goes on telling."""
    READ_ONLY = "read-only"
    REFUSED = "refused"
    """It knows the caller and lets it not do this, or does not know it."""
    FAULT = "fault"
    """Any other answer that is an error."""


class StoreError(Exception):
    """A store did not do what it was asked to; ``trouble`` is why, the text what it said."""

    def __init__(self, trouble: Trouble, said: str) -> None:
        super().__init__(said)
        self.trouble = trouble


class Row(Protocol):
    """A value to be stored, with what tells it from older ones."""

    @property
    def key(self) -> str:
        """Its name among sessions, 32 hex digits."""

    @property
    def value(self) -> bytes:
        """A MessagePack array that begins with its form, version and turn."""

    @property
    def version(self) -> int:
        """The version in it."""

    @property
    def turn(self) -> int:
        """The turn in it."""


class Lease(NamedTuple):
    """A value that holds for a while, and how many seconds of that are left."""

    name: str
    value: bytes
    left_s: float


class Listener(Protocol):
    """Who wants to hear what routers say."""

    def on_message(self, data: bytes) -> None:
        """A router's message, this one's own as well."""

    def on_listening(self) -> None:
        """From now on messages arrive; any that were sent before may have been missed."""

    def on_deaf(self, error: StoreError) -> None:
        """No message arrives any more, until ``on_listening``."""


class Store(Protocol):
    """A store; every call may raise ``StoreError``, and none takes longer than the limit it was made with.

    ``n_commands`` counts what a server behind it was asked to do.
    """

    n_commands: int

    async def start(self, listener: Listener) -> None:
        """Begin to listen, and go on trying until ``stop``. Does not wait for the store."""

    async def stop(self) -> None:
        """Listen no more and close what is open. Never raises."""

    async def read(self, keys: Sequence[str]) -> list[bytes | None]:
        """The sessions of these names, None for those it does not know."""

    async def write(self, rows: Sequence[Row], *, ttl_s: float) -> list[bytes | None]:
        """Store sessions, but over no newer one; answers for each the newer one that stays, or None."""

    async def say(self, router: str, vector: bytes, message: bytes, *, ttl_s: float) -> bool:
        """Pass a message on to all that listen, and keep ``vector`` for ``ttl_s`` as this router's last word.

        Answers whether the word before was still there; if it should have been, the store was emptied.

        Raises:
            StoreError: nothing was passed on; with ``FULL`` and ``READ_ONLY`` it was, and nothing kept.
        """

    async def swap(self, row: Row, *, expected: int | None, ttl_s: float) -> bytes | None:
        """Store a session if what is there has this version, or nothing is and ``expected`` is None.

        Answers None if it was stored, else what is there (empty if nothing).
        """

    async def hold(self, name: str, value: bytes, *, expected: bytes | None, ttl_s: float) -> bool:
        """Keep a named value for ``ttl_s`` if this stands there (None: nothing); False if something else does.

        An empty value takes it away.
        """

    async def held(self) -> list[Lease]:
        """All named values that hold."""

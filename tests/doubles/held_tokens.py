"""Cached tokens of one prompt as a plain table, for tests of policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


class HeldTokens(dict[str, int]):
    """Tokens by replica id, with the levels that they make."""

    @property
    def most(self) -> int:
        return max(self.values(), default=0)

    def levels(self) -> Iterator[tuple[int, Collection[str]]]:
        for tokens in sorted(set(self.values()), reverse=True):
            yield tokens, [name for name, held in self.items() if held >= tokens]

    def everyone(self) -> dict[str, int]:
        return self

    @override
    def get(self, replica_id: str, default: int = 0, /) -> int:  # type: ignore[override]
        return super().get(replica_id, default)

"""What every test needs: no variables of the product's own, and a router that never blocks its loop."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from blockbuster import blockbuster_ctx

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("HOMEPORT_"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _unblocked_router() -> Iterator[None]:
    with blockbuster_ctx("router"):
        yield

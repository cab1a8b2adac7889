"""What every test needs: an environment without the product's own variables."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("HOMEPORT_"):
            monkeypatch.delenv(name)

"""The members that the contract holds for: the emulated replica, and real SGLang."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.doubles.engines import FLEET, LEAVING, TIGHT, Member, emulated

if TYPE_CHECKING:
    from collections.abc import Iterator

EMULATED = "emulated"
SGLANG = "sglang"


@pytest.fixture(scope="session", params=[EMULATED, pytest.param(SGLANG, marks=pytest.mark.engine)])
def kind(request: pytest.FixtureRequest) -> str:
    """Which kind of replica a test speaks to."""
    return str(request.param)


@pytest.fixture(scope="session")
def replicas(kind: str, request: pytest.FixtureRequest) -> Iterator[dict[str, Member]]:
    """One replica of this kind for each role, by the role's name."""
    if kind == SGLANG:
        members: dict[str, Member] = request.getfixturevalue("engines")
        yield members
    else:
        with emulated((FLEET[0], TIGHT, LEAVING)) as members:
            yield members


@pytest.fixture(scope="session")
def plain(replicas: dict[str, Member]) -> Member:
    """A replica with room for everything."""
    return replicas[FLEET[0].name]


@pytest.fixture(scope="session")
def tight(replicas: dict[str, Member]) -> Member:
    """A replica that runs one request and lets one wait, has a small pool, and demands keys."""
    return replicas[TIGHT.name]


@pytest.fixture(scope="session")
def leaving(replicas: dict[str, Member]) -> Member:
    """A replica that a test may end."""
    return replicas[LEAVING.name]

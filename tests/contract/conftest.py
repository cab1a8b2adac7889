"""The members that the contract holds for: the emulated replica, and real SGLang."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.doubles.engines import FLEET, LEAVING, TIGHT, Member, Role, emulated
from tests.doubles.replica_calls import is_idle, load_when, session

if TYPE_CHECKING:
    from collections.abc import Iterator

EMULATED = "emulated"
SGLANG = "sglang"
REST_S_MAX = 15.0


@pytest.fixture(scope="session", params=[EMULATED, pytest.param(SGLANG, marks=pytest.mark.engine)])
def kind(request: pytest.FixtureRequest) -> str:
    """Which kind of replica a test speaks to."""
    return str(request.param)


@contextlib.contextmanager
def in_role(kind: str, role: Role, request: pytest.FixtureRequest) -> Iterator[Member]:
    """The replica of this kind in a role; an emulated one is started when a test first asks for it."""
    if kind == SGLANG:
        members: dict[str, Member] = request.getfixturevalue("engines")
        yield members[role.name]
    else:
        with emulated((role,)) as started:
            yield started[role.name]


@pytest.fixture(scope="session")
def plain(kind: str, request: pytest.FixtureRequest) -> Iterator[Member]:
    """A replica with room for everything."""
    with in_role(kind, FLEET[0], request) as member:
        yield member


@pytest.fixture(scope="session")
def tight(kind: str, request: pytest.FixtureRequest) -> Iterator[Member]:
    """A replica that runs one request and lets one wait, has a small pool, and demands keys."""
    with in_role(kind, TIGHT, request) as member:
        yield member


@pytest.fixture(scope="session")
def leaving(kind: str, request: pytest.FixtureRequest) -> Iterator[Member]:
    """A replica that a test may end."""
    with in_role(kind, LEAVING, request) as member:
        yield member


@pytest.fixture(scope="session")
def restless() -> set[str]:
    """Replicas that once did not come to rest: what is wrong with them is for the tests to say."""
    return set()


@pytest.fixture(autouse=True)
async def at_rest(request: pytest.FixtureRequest, restless: set[str]) -> None:
    """What the test before left behind has ended, and shows in no load report any more."""
    for name in {"plain", "tight"} & set(request.fixturenames):
        member: Member = request.getfixturevalue(name)
        if member.url in restless:
            continue
        try:
            async with asyncio.timeout(REST_S_MAX), session(member) as http:
                await load_when(http, is_idle)
        except TimeoutError:
            restless.add(member.url)

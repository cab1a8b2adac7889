"""What every test needs: no variables of the product's own, and a router that never blocks its loop."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, settings

from tests.doubles.engines import ALL, Member, read_kept, running_engines

if TYPE_CHECKING:
    from collections.abc import Iterator

_TESTS = Path(__file__).parent
_LONG = ("integration", "contract", "simulation", "props")

# How long an example takes says something of the machine and of what else it does.
settings.register_profile(
    "busy-machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy-machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "use the real replicas that `python -m tests.doubles.engines FILE` keeps"
    parser.addoption("--engines", type=Path, metavar="FILE", help=text)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that may take long come first, those that wait among those that compute; the last ones are short."""
    files = {folder: dict.fromkeys(_files_of(items, folder)) for folder in _LONG}
    place = {
        path: number / len(paths) for paths in files.values() for number, path in enumerate(paths)
    }
    items.sort(key=lambda item: place.get(item.path, 1.0))


def _files_of(items: list[pytest.Item], folder: str) -> list[Path]:
    return [item.path for item in items if item.path.is_relative_to(_TESTS / folder)]


def pytest_collection_finish() -> None:
    """What was imported and collected stays: no garbage collection of a test looks at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("HOMEPORT_"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _unblocked_router() -> Iterator[None]:
    with blockbuster_ctx("router") as blocking:
        # A loop of a thread of its own, for a library whose coroutine reads files.
        for function in blocking.functions.values():
            function.can_block_in("router/control/discovery/access.py", "_run")
            # A command's own loop serves nobody else, and imports what prints when it has an answer.
            function.can_block_in("router/commands/desk.py", "work")
        yield


@pytest.fixture(scope="session")
def engines(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[dict[str, Member]]:
    """Real replicas by the name of their role, for the whole run: they take a minute to start."""
    kept: Path | None = pytestconfig.getoption("--engines")
    if kept is not None:
        yield read_kept(kept)
        return
    with running_engines(ALL, tmp_path_factory.mktemp("engines")) as engines:
        yield {engine.role.name: engine.member for engine in engines}

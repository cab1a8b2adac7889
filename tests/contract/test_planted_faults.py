"""The contract has teeth: each of five faults, planted in a copy of the emulator, fails it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path(__file__).parents[2]
COPIED: Final = (
    "hashing",
    "replica",
    "router",
    "sim",
    "tests/contract",
    "tests/doubles",
    "tests/conftest.py",
    "pyproject.toml",
)
RUN_S_MAX: Final = 50


@dataclass(frozen=True)
class Fault:
    """One change of one file's text, and the tests of which at least one has to notice it."""

    name: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


FAULTS: Final = (
    Fault(
        "a page matched past an evicted one",
        "sim/engine/cache.py",
        "        del parent.children[leaf.id_at(leaf.start)]\n        leaf.parent = None\n",
        "        leaf.is_listed = True\n",
        ("test_replica_cache.py::test_nothing_is_matched_past_what_was_evicted",),
    ),
    Fault(
        "usage without cached tokens",
        "sim/live/serving/chat_wire.py",
        '"prompt_tokens_details": {"cached_tokens": usage.cached_tokens},',
        '"prompt_tokens_details": None,',
        ("test_replica_chat.py::test_a_whole_answer",),
    ),
    Fault(
        "a full queue told a stream with status 503",
        "sim/live/serving/dialects.py",
        "if call.is_stream and problem.is_late:",
        "if call.is_stream and problem.is_late and status == BAD_REQUEST:",
        ("test_replica_queue.py::test_a_full_queue_in_each_form",),
    ),
    Fault(
        "the last page of a prompt of whole pages counted as cached",
        "sim/engine/scheduler.py",
        "cacheable = (request.prompt_tokens - 1) // page\n",
        "cacheable = request.prompt_tokens // page\n",
        ("test_replica_cache.py::test_a_repeated_prompt_is_cached_but_for_its_last_token",),
    ),
    Fault(
        "a client that leaves ignored",
        "sim/live/serving/generation.py",
        "                if job.has_head:\n                    self._pacer.cancel(job.generation.rid)\n",
        "                if job.has_head:\n                    pass\n",
        ("test_replica_disconnect.py::test_a_stream_that_is_left_ends_at_once",),
    ),
)


def copy_to(folder: Path) -> None:
    """All that an emulated replica and its contract need; compiled files come along, which saves time."""
    for name in COPIED:
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)


def plant(folder: Path, fault: Fault) -> None:
    path = folder / fault.file
    text = path.read_text()
    assert text.count(fault.right) == 1, f"{fault.file} no longer has once: {fault.right!r}"
    path.write_text(text.replace(fault.right, fault.wrong))


def run(folder: Path, tests: Iterable[str]) -> tuple[list[str], list[str]]:
    """Run contract tests of the emulated replica in a copy: the names that passed and that failed."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    where = [sys.executable, "-P", "-c", "import sim.cli, router.cli; print(sim.__path__[0])"]
    imported = subprocess.check_output(where, cwd=folder, env=environment, text=True)
    assert imported.strip() == str(folder / "sim")

    report = folder / "report.xml"
    names = [f"tests/contract/{test}" for test in tests]
    options = ["-q", "-x", "-p", "no:cacheprovider", f"--junitxml={report}"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", *options, *names],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert report.exists(), done.stdout + done.stderr
    passed: list[str] = []
    failed: list[str] = []
    for case in ET.parse(report).iter("testcase"):
        assert case.find("error") is None, f"not a test failed, but what it needs:\n{done.stdout}"
        assert case.find("skipped") is None
        (passed if case.find("failure") is None else failed).append(str(case.get("name")))
    return passed, failed


def test_without_a_fault_the_same_tests_pass(tmp_path: Path) -> None:
    copy_to(tmp_path)
    passed, failed = run(tmp_path, [test for fault in FAULTS for test in fault.tests])
    assert not failed
    assert len(passed) >= len(FAULTS)
    assert all("emulated" in name for name in passed)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_the_fault_fails_the_contract(fault: Fault, tmp_path: Path) -> None:
    copy_to(tmp_path)
    plant(tmp_path, fault)
    _, failed = run(tmp_path, fault.tests)
    assert failed

"""A real replica never outlives the process that started it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.doubles.engines import ROOT, is_gone, is_living

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

STARTER = """
import sys
from pathlib import Path
from tests.doubles.engines import FLEET, Engine

engine = Engine(FLEET[0], Path(sys.argv[1]))
print(engine.process.pid, flush=True)
engine.process.wait()
"""
GONE_S_MAX = 5.0


def test_it_ends_with_its_starter_however_that_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    starter = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    group = int(starter.stdout.readline())
    assert is_living(group)
    starter.kill()
    starter.wait()
    starter.stdout.close()
    assert is_gone(group, within_s=GONE_S_MAX)

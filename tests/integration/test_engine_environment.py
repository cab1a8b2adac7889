"""What ``make test-engine`` says where its environment cannot be made."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """``make`` the environment in a copy of what it is made from, without network."""
    shutil.copy(ROOT / "Makefile", folder)
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
    return subprocess.run(
        ["make", ".venv-engine/.made"],
        cwd=folder,
        env={**os.environ, **offline, **variables},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def said(made: subprocess.CompletedProcess[str]) -> str:
    """Its own words: make's report of the failed target follows them."""
    return "".join(line for line in made.stderr.splitlines(keepends=True) if "make" not in line[:6])


@pytest.mark.skipif(shutil.which("python3.11") is None, reason="needs python3.11 on the path")
def test_a_missing_torch_wheel_is_one_clear_line(tmp_path: Path) -> None:
    made = make(tmp_path)
    assert made.returncode != 0
    [line] = [line for line in said(made).splitlines() if "torch" in line]
    for word in ("torch==2.13.0+cpu", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "torch.log"):
        assert word in line
    assert "no matching distribution" in (tmp_path / ".venv-engine/torch.log").read_text().lower()
    assert not (tmp_path / ".venv-engine/.made").exists()


def test_another_python_is_named(tmp_path: Path) -> None:
    made = make(tmp_path, ENGINE_PYTHON="no-such-python")
    assert made.returncode != 0
    assert "real SGLang needs Python 3.11; no-such-python is not that" in made.stderr
    assert not (tmp_path / ".venv-engine").exists()

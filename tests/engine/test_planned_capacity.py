"""The plan's tokens against what real SGLang makes of a CPU's memory.

SGLang sizes its pool by the memory that is free, which other processes here change meanwhile: each
setting is tried up to three times, with what SGLang says it found at its start, once the memory of
the one before has come back.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from replica.engines.sglang import launch_of
from replica.hardware.footprint import footprint_of_config
from replica.hardware.models import KvDtype
from replica.machine.memory import free_cpu_gib
from replica.machine.model_files import read_model
from replica.settings import load_recipe
from replica.setup import Setup, changed, setup_of
from tests.doubles.engines import PYTHON, READY_S_MAX, SCRIPTS, is_gone, tiny_model
from tests.doubles.processes import tied
from tests.unit.replica_recipes.setups import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from replica.engines.base import Launch

pytestmark = pytest.mark.engine

TRIES = 3
CLOSE = 0.02
STILL_GIB = 0.02
STILL_S_MAX = 20.0
FOUND = re.compile(r"Load weight begin\. avail mem=([0-9.]+) GB")


def set_up(mem_fraction: float, page_tokens: int, device_gib: float) -> Setup:
    recipe = changed(load_recipe("tiny-cpu").resolved(), mem_fraction=mem_fraction)
    page = recipe.memory.page_tokens
    assert page is not None
    pages = page.model_copy(update={"value": page_tokens})
    memory = recipe.memory.model_copy(update={"page_tokens": pages})
    model = read_model(str(tiny_model()))
    share = footprint_of_config(
        model.config, weights_bytes=model.weights_bytes, tp=1, kv_dtype=KvDtype.BF16
    )
    recipe = recipe.model_copy(update={"memory": memory})
    return setup_of(recipe, device_gib=device_gib, footprint=share)


def settled_gib() -> float:
    """What is free once it no longer changes: a killed process gives gigabytes back after its end."""
    until_s = time.monotonic() + STILL_S_MAX
    before_gib = free_cpu_gib()
    assert before_gib is not None
    while True:
        time.sleep(0.5)
        free_gib = free_cpu_gib()
        assert free_gib is not None
        if abs(free_gib - before_gib) <= STILL_GIB or time.monotonic() > until_s:
            return free_gib
        before_gib = free_gib


def capacity_of(launch: Launch, log: Path) -> int:
    """Start it, read ``max_total_num_tokens``, end it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*tied(str(PYTHON)), str(PYTHON), *launch.argv],
            env={**kept, **launch.environment, "PYTHONPATH": str(SCRIPTS / "stubs")},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        until_s = time.monotonic() + READY_S_MAX
        while time.monotonic() < until_s and process.poll() is None:
            with (
                suppress(OSError),
                urllib.request.urlopen(
                    f"http://127.0.0.1:{launch.port}/server_info", timeout=5
                ) as answer,
            ):
                return int(json.load(answer)["max_total_num_tokens"])
            time.sleep(0.5)
        raise AssertionError(log.read_text()[-3000:])
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert is_gone(process.pid)


@pytest.mark.parametrize(("mem_fraction", "page_tokens"), [(0.2, 64), (0.3, 1), (0.4, 128)])
def test_the_plan_is_what_sglang_leaves(
    tmp_path: Path, mem_fraction: float, page_tokens: int
) -> None:
    off = []
    for attempt in range(TRIES):
        setup = set_up(mem_fraction, page_tokens, settled_gib())
        launch = launch_of(
            setup,
            port=free_port(),
            model_path=str(tiny_model()),
            program=str(PYTHON.with_name("sglang")),
        )
        assert "--max-total-tokens" not in launch.argv
        log = tmp_path / f"{attempt}.log"
        tokens = capacity_of(launch, log)
        found = FOUND.search(log.read_text())
        assert found is not None
        planned = set_up(mem_fraction, page_tokens, float(found[1])).capacity_tokens
        assert planned % page_tokens == tokens % page_tokens == 0
        off.append(planned / tokens - 1)
        if abs(off[-1]) <= CLOSE:
            return
    raise AssertionError(f"planned against real, each time: {off}")

"""The replay of recorded sessions against a live fleet, on a few invented traces."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


async def _bench(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.sessions", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def _write_trace(folder: Path, number: int) -> None:
    rows = []
    for turn in range(12):
        n_blocks = 200 + 10 * turn
        rows.append(
            {
                "t": 4.0 * turn,
                "type": "s",
                "in": n_blocks * 64 + 5,
                "out": 20,
                "hash_ids": list(range(1, n_blocks + 1)),
                "api_time": 1.0,
            }
        )
    trace = {"id": f"trace_{number}", "block_size": 64, "tool_tokens": 640, "requests": rows}
    (folder / f"trace_{number}.json").write_text(json.dumps(trace))


async def test_hits_meet_the_ceiling_on_one_replica(tmp_path: Path) -> None:
    for number in range(3):
        _write_trace(tmp_path, number)
    result = tmp_path / "result.out"
    code, out, err = await _bench(
        *("--data", str(tmp_path), "--sessions", "2", "--replicas", "1", "--json", str(result)),
        *("--time-scale", "50", "--requests", "14", "--warmup", "2"),
    )
    assert code == 0, err
    assert "hit ratio of an infinite cache" in out
    (measured,) = json.loads(result.read_text())
    assert (measured["requests"], measured["errors"], measured["policy"]) == (14, 0, "home")
    assert measured["hit_ratio"] == pytest.approx(measured["hit_ratio_ceiling"], abs=0.001)
    assert 12_800 <= measured["mean_prompt_tokens"] <= 20_000


async def test_missing_data_is_one_clear_line(tmp_path: Path) -> None:
    code, out, err = await _bench("--data", str(tmp_path / "absent.tar.xz"))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "absent.tar.xz: no such file or folder" in err

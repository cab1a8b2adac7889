"""The reader of Claude Code traces, on a few invented rows."""

from __future__ import annotations

import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from sim.workload.traces.errors import TraceError
from sim.workload.traces.model import Limits
from sim.workload.weka import parse_trace, read_traces, sample_traces

if TYPE_CHECKING:
    from pathlib import Path


def _row(**changes: object) -> dict[str, Any]:
    row = {"t": 0.0, "type": "s", "model": "m", "in": 130, "out": 5, "hash_ids": [1, 2]}
    return {**row, "api_time": 2.0, "input_types": ["text"], "stop": "", **changes}


def _trace(rows: list[dict[str, Any]], **changes: object) -> bytes:
    trace = {
        "id": "trace_0001",
        "models": ["m"],
        "block_size": 64,
        "hash_id_scope": "local",
        "tool_tokens": 100,
        "system_tokens": 28,
        "requests": rows,
    }
    return json.dumps({**trace, **changes}).encode()


def _archive(folder: Path, files: dict[str, bytes]) -> Path:
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    path = folder / "traces.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        for name in files:
            archive.add(folder / name, arcname=f"set/{name}")
    return path


def test_rows_are_read_with_their_gaps() -> None:
    raw = _trace(
        [
            _row(),
            {
                "t": 3.0,
                "type": "subagent",
                "agent_id": "a",
                "status": "completed",
                "requests": [_row(type="n")],
            },
            _row(t=10.0, type="n", **{"in": 200}, hash_ids=[1, 2, 3], api_time=None),
            _row(t=20.0, out=0),
            _row(t=21.0),
            _row(t=5_000.0),
        ]
    )
    trace = parse_trace(raw, "x.json")
    assert trace.trace_id == "trace_0001"
    assert trace.head_tokens == 128
    assert [row.gap_s for row in trace.rows] == [0.0, 8.0, pytest.approx(3.9), 0.0, 300.0]
    assert [row.output_tokens for row in trace.rows] == [5, 5, 1, 5, 5]
    assert list(trace.rows[1].block_ids) == [1, 2, 3]


def test_contexts_are_cut_with_their_ids() -> None:
    raw = _trace([_row(**{"in": 1_000}, hash_ids=list(range(1, 16)))])
    row = parse_trace(raw, "x", limits=Limits(context_tokens_max=200)).rows[0]
    assert row.input_tokens == 200
    assert list(row.block_ids) == [1, 2, 3]


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        (b"{", "x.json"),
        (b"[" * 10_000, "x.json"),
        (b'"\xff"', "x.json"),
        (_trace([]), "no main request"),
        (_trace([_row()], block_size=16), "block_size is 16"),
        (_trace([_row(), _row(hash_ids=[1])]), r"requests\[1\]: 1 hash_ids for 130 tokens"),
        (_trace([_row(type="z")]), r"requests\[0\].type: .*got 'z'"),
        (_trace([_row(**{"in": 0}, hash_ids=[])]), r"requests\[0\]\.in: .* got 0"),
        (_trace([_row(hash_ids=[1, -2])]), "outside 0 to"),
        (_trace([_row(hash_ids=["a", "b"])]), r"requests\[0\]\.hash_ids\[0\]"),
    ],
)
def test_errors_name_file_and_place(raw: bytes, place: str) -> None:
    with pytest.raises(TraceError, match=place) as caught:
        parse_trace(raw, "x.json")
    assert "x.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_archive_folder_and_file_hold_the_same(tmp_path: Path) -> None:
    files = {f"trace_000{i}.json": _trace([_row()], id=f"trace_000{i}") for i in (1, 2, 3)}
    archive = _archive(tmp_path, files)
    expected = ["trace_0001", "trace_0002", "trace_0003"]
    assert [t.trace_id for t in read_traces(archive)] == expected
    assert [t.trace_id for t in read_traces(tmp_path)] == expected
    assert [t.trace_id for t in read_traces(tmp_path / "trace_0002.json")] == ["trace_0002"]


def test_samples_depend_on_the_seed_alone(tmp_path: Path) -> None:
    files = {f"trace_{i:04}.json": _trace([_row()], id=f"trace_{i:04}") for i in range(30)}
    archive = _archive(tmp_path, files)
    one = [t.trace_id for t in sample_traces(archive, count=5, seed=1)]
    assert one == [t.trace_id for t in sample_traces(tmp_path, count=5, seed=1)]
    assert len(set(one)) == 5
    assert one != [t.trace_id for t in sample_traces(archive, count=5, seed=2)]
    assert len(sample_traces(archive, count=99, seed=1)) == 30


def test_missing_or_broken_files_are_said(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        next(read_traces(tmp_path / "absent.tar.xz"))
    with pytest.raises(TraceError, match="no trace in it"):
        sample_traces(tmp_path, count=1, seed=1)
    broken = tmp_path / "broken.tar.xz"
    broken.write_bytes(b"not an archive")
    with pytest.raises(TraceError, match="malformed"):
        next(read_traces(broken))
    whole = _archive(tmp_path, {"t.json": _trace([_row()] * 2_000)})
    whole.write_bytes(whole.read_bytes()[:-200])
    with pytest.raises(TraceError, match="cannot be read"):
        list(read_traces(whole))

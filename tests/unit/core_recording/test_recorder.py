"""The recording's file: made anew and private, bounded, whole after a close, never in the way."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from router.core import CoreParameters
from router.errors import ConfigError
from router.obs.metrics import Counts, RouterMetrics
from router.obs.recorder import Recorder
from router.recording.codec import Recording
from router.recording.records import Began, End, Finish, Header, Leave
from router.state.history import Outcome
from tests.doubles.core_rig import make_core

if TYPE_CHECKING:
    from pathlib import Path

    from router.recording.records import Record

HEADER = Header("homeport test", "home", 7, CoreParameters(), 1000)
MIB = 1 << 20


def read(path: Path) -> Recording:
    return Recording(iter([path.read_bytes()]))


async def test_what_is_written_on_the_loop_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    recorder = Recorder(path, HEADER, bytes_max=MIB)
    rows: list[Record] = [Began(n, n / 3) for n in range(5_000)]
    rows += [Leave("r" * 300_000)] * 20
    for row in rows[:100]:  # as replicas that are named in the settings join
        recorder.write(row)
    await asyncio.to_thread(recorder.start)
    for row in rows[100:]:
        recorder.write(row)
    assert recorder.is_open
    await asyncio.to_thread(recorder.close)
    recording = read(path)
    assert recording.header == HEADER
    assert list(recording) == [*rows, End("closed")]
    assert not recording.is_truncated
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert recorder.n_records == len(rows) + 1
    assert recorder.n_bytes == path.stat().st_size
    assert not recorder.is_open
    recorder.write(rows[0])
    assert recorder.n_records == len(rows) + 1


async def test_the_header_is_there_at_once_and_the_rest_within_seconds(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    recorder = Recorder(path, HEADER, bytes_max=MIB)
    await asyncio.to_thread(recorder.start)
    try:
        recorder.write(Began(1, 1.0))
        async with asyncio.timeout(20):
            # A thread makes it true: there is nothing to wait on but time.
            while recorder.n_bytes == 0 or Began(1, 1.0) not in list(read(path)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        await asyncio.to_thread(recorder.close)


def test_a_file_that_exists_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    path.write_text("mine")
    with pytest.raises(ConfigError, match=r"record = '.*a\.rec': the file exists.*a new one"):
        Recorder(path, HEADER, bytes_max=MIB).start()
    assert path.read_text() == "mine"
    with pytest.raises(ConfigError, match="its folder does not exist; make it first"):
        Recorder(tmp_path / "no" / "a.rec", HEADER, bytes_max=MIB).start()
    with pytest.raises(ConfigError, match="name a file that can be made"):
        Recorder(path / "b", HEADER, bytes_max=MIB).start()


def test_a_recorder_that_never_started_closes(tmp_path: Path) -> None:
    Recorder(tmp_path / "a.rec", HEADER, bytes_max=MIB).close()
    assert not (tmp_path / "a.rec").exists()


def test_a_discarded_recording_leaves_no_file_but_one_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    recorder = Recorder(path, HEADER, bytes_max=MIB)
    recorder.start()
    other = Recorder(path, HEADER, bytes_max=MIB)
    with pytest.raises(ConfigError):
        other.start()
    other.discard()
    assert path.exists()
    recorder.discard()
    assert not path.exists()


def until_ended(recorder: Recorder) -> None:
    """Its thread ends by itself."""
    assert recorder._thread is not None
    recorder._thread.join(20)
    assert not recorder._thread.is_alive()
    assert not recorder.is_open


def test_a_full_file_ends_the_recording_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.rec"
    recorder = Recorder(path, HEADER, bytes_max=MIB)
    with caplog.at_level(logging.WARNING, "homeport.recorder"):
        recorder.start()
        for _ in range(20):
            recorder.write(Leave(os.urandom(50_000).hex()))
        recorder._wake.set()
        until_ended(recorder)
    recorder.close()
    assert MIB // 2 < path.stat().st_size <= MIB
    recording = read(path)
    assert all(isinstance(row, Leave | End) for row in recording)
    assert "record_mib_max" in recording.end_reason
    assert not recording.is_truncated
    assert [record.getMessage().split()[0] for record in caplog.records] == ["recording-ended"]


FULL_DISK = """
import logging, os, resource, sys
from pathlib import Path
from router.core import CoreParameters
from router.obs.recorder import Recorder
from router.recording.records import Header, Leave

logging.basicConfig(level=logging.WARNING)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))  # a write beyond fails, as on a full disk
recorder = Recorder(Path(sys.argv[1]), Header("t", "home", 7, CoreParameters(), 9), bytes_max=1 << 30)
recorder.start()
for _ in range(100):
    recorder.write(Leave(os.urandom(500).hex()))
recorder._wake.set()
recorder._thread.join(20)
recorder.write(Leave("x"))
recorder.close()
print(recorder.is_open, recorder._thread.is_alive())
"""


def test_a_disk_that_fills_ends_the_recording_with_one_warning(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    run = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)],
        capture_output=True,
        text=True,
        timeout=40,
        check=True,
    )
    assert run.stdout == "False False\n"
    assert run.stderr.count("WARNING:homeport.recorder:recording-ended") == 1
    assert "writing failed: File too large" in run.stderr
    recording = read(path)
    assert all(isinstance(row, Leave) for row in recording)
    assert recording.is_truncated


def test_a_file_that_takes_nothing_does_not_fill_the_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path / "a.rec", HEADER, bytes_max=MIB)  # its thread does not run
    row = Leave("r" * 100_000)
    with caplog.at_level(logging.WARNING, "homeport.recorder"):
        for _ in range(500):
            recorder.write(row)
    assert not recorder.is_open
    assert recorder._queued_bytes <= 32 * MIB
    assert len(caplog.records) == 1


def test_a_record_that_cannot_be_written_ends_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    recorder = Recorder(path, HEADER, bytes_max=MIB)
    recorder.start()
    recorder.write(Began(1, 1.0))
    recorder.write(Finish(1, 2.0, Outcome.DONE, 10**30, 1, None, None, None))
    recorder.write(Began(2, 3.0))
    recorder.close()
    recording = read(path)
    assert list(recording)[:1] == [Began(1, 1.0)]
    assert "a Finish record cannot be written" in recording.end_reason
    assert recording.n_records == 3


def test_metrics_say_whether_it_records(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.rec", HEADER, bytes_max=MIB)
    metrics = RouterMetrics(make_core(), Counts(), recorder)
    recorder.start()
    recorder.write(Began(1, 1.0))
    assert "homeport_recording 1.0" in metrics.text().decode()
    recorder.close()
    lines = metrics.text().decode().splitlines()
    assert "homeport_recording 0.0" in lines
    assert "homeport_recorded_records_total 2.0" in lines
    assert f"homeport_recorded_bytes_total {float(recorder.n_bytes)}" in lines
    plain = RouterMetrics(make_core(), Counts()).text().decode().splitlines()
    assert "homeport_recorded_records_total 0.0" in plain

"""Where traces lie: folders, files and archives, packed or not, whole or damaged."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.workload.traces.errors import TraceError
from sim.workload.traces.files import Bounds, members
from sim.workload.traces.formats import read_workload
from tests.unit.agent_workload.trace_examples import EXAMPLES, LMCACHE, MOONCAKE, WEKA

if TYPE_CHECKING:
    from pathlib import Path


def archive(mode: str, contents: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as opened:  # type: ignore[call-overload]
        for name, raw in contents.items():
            entry = tarfile.TarInfo(f"set/{name}")
            entry.size = len(raw)
            opened.addfile(entry, io.BytesIO(raw))
    return packed.getvalue()


@pytest.mark.parametrize("mode", ["w", "w:xz", "w:gz"])
def test_an_archive_is_known_by_its_bytes(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "traces"
    contents = {"README.md": b"# read me", "b.json": WEKA, "a.json": WEKA}
    path.write_bytes(archive(mode, contents))
    assert [member.file_name for member in members(path)] == ["b.json", "a.json"]
    assert len(read_workload(path).sessions) == 4


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("pack", [lzma.compress, gzip.compress])
def test_a_packed_file_is_read_as_it_is(tmp_path: Path, name: str, pack: object) -> None:
    path = tmp_path / "packed"
    path.write_bytes(pack(EXAMPLES[name][1]))  # type: ignore[operator]
    assert read_workload(path).format == name


def test_a_folder_is_read_in_the_order_of_names_and_others_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "c.jsonl.xz").write_bytes(lzma.compress(LMCACHE))
    (tmp_path / "b.jsonl").write_bytes(b"")
    (tmp_path / "notes.txt").write_bytes(b"not a trace")
    assert [member.file_name for member in members(tmp_path)] == ["b.jsonl", "c.jsonl.xz"]
    assert read_workload(tmp_path).format == "lmcache"


@pytest.mark.parametrize("mode", ["w:xz", "w:gz", "w"])
@pytest.mark.parametrize("kept", [0.2, 0.6, 0.95])
def test_a_cut_off_archive_is_refused(tmp_path: Path, mode: str, kept: float) -> None:
    noise = b"".join(b"%d " % (i * 7919) for i in range(9_000))
    whole = archive(mode, {"a.json": WEKA, "b.json": WEKA.replace(b"trace_0001", noise[:200])})
    path = tmp_path / "traces.tar"
    path.write_bytes(whole[: int(kept * len(whole.rstrip(b"\0")))])
    with pytest.raises(TraceError, match=r"traces\.tar"):
        read_workload(path, format_name="weka")


def test_a_cut_off_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.xz"
    path.write_bytes(lzma.compress(MOONCAKE * 100)[:-20])
    with pytest.raises(TraceError, match="cannot be read"):
        read_workload(path)


def test_what_is_missing_or_empty_is_said(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file or folder"):
        read_workload(tmp_path / "absent")
    with pytest.raises(TraceError, match="no trace in it"):
        read_workload(tmp_path)


@pytest.mark.parametrize("name", ["mooncake", "azure", "recording"])
def test_files_with_clocks_of_their_own_are_not_joined(tmp_path: Path, name: str) -> None:
    file_name, raw = EXAMPLES[name]
    (tmp_path / file_name).write_bytes(raw)
    (tmp_path / f"x{file_name}").write_bytes(raw)
    with pytest.raises(TraceError, match="a second"):
        read_workload(tmp_path)


def test_one_object_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes(b"x" * 101)
    files = members(path, bounds=Bounds(file_bytes_max=100))
    with pytest.raises(TraceError, match="trace: over 100 bytes"):
        next(files).whole()


def consumed(path: Path, bounds: Bounds) -> None:
    for member in members(path, bounds=bounds):
        for _ in member.lines():
            pass


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        (Bounds(line_bytes_max=100), r"a\.json: line 2: over 100 bytes"),
        (Bounds(total_bytes_max=50), "over 50 bytes in all"),
        (Bounds(members_max=3), "over 3 files"),
    ],
)
def test_what_is_read_is_bounded(tmp_path: Path, bounds: Bounds, said: str) -> None:
    contents = {"a.json": b"{}\n" + b"x" * 2_000_000, "b.json": b"", "c.json": b"", "d.json": b""}
    for name, raw in contents.items():
        (tmp_path / name).write_bytes(raw)
    with pytest.raises(TraceError, match=said):
        consumed(tmp_path, bounds)
    packed = tmp_path / "packed"
    packed.write_bytes(archive("w:xz", contents))
    with pytest.raises(TraceError, match=said):
        consumed(packed, bounds)


def test_progress_counts_unpacked_bytes(tmp_path: Path) -> None:
    path = tmp_path / "trace.xz"
    path.write_bytes(lzma.compress(MOONCAKE * 3))
    heard: list[int] = []
    with pytest.raises(TraceError, match="line 5"):
        read_workload(path, on_bytes=heard.append)
    assert heard[-1] == len(MOONCAKE) * 3


@given(at=st.integers(0, 2_000), junk=st.binary(min_size=1, max_size=8))
@settings(deadline=None, max_examples=80)
def test_no_damage_of_an_archive_crashes(
    tmp_path_factory: pytest.TempPathFactory, at: int, junk: bytes
) -> None:
    for mode in ("w", "w:xz", "w:gz"):
        whole = bytearray(archive(mode, {"a.json": WEKA}))
        at %= len(whole)
        whole[at : at + len(junk)] = junk
        path = tmp_path_factory.getbasetemp() / "damaged"
        path.write_bytes(whole)
        said = "read"
        try:
            read_workload(path)
        except TraceError as failure:
            said = str(failure)
        assert said.isprintable()

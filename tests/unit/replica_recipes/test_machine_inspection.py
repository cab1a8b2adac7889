"""What a check finds on a machine with GPUs, told by a stand-in for the driver's tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.engines.sglang import launch_of
from replica.machine.gpus import cards, unlinked
from replica.machine.inspection import Finding, inspected
from replica.machine.memory import free_cpu_gib, total_gib
from replica.plan.figures import plan_of
from tests.unit.replica_recipes.setups import kimi

if TYPE_CHECKING:
    from pathlib import Path

B200 = "NVIDIA B200, 183359, {free}, {driver}"
LINKED = """\
\x1b[4m\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\x1b[0m
GPU0\t X \tNV18\tNV18\t{one}\tPXB\t0-55
GPU1\tNV18\t X \tNV18\tNV18\tNODE\t0-55
GPU2\tNV18\tNV18\t X \tNV18\tNODE\t0-55
GPU3\t{one}\tNV18\tNV18\t X \tNODE\t0-55
NIC0\tPXB\tNODE\tNODE\tNODE\t X

Legend:
"""


def machine(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[str],
    *,
    one: str = "NV18",
) -> None:
    """A PATH with a tool that says this."""
    (folder / "rows").write_text("".join(f"{n}, {row}\n" for n, row in enumerate(rows)))
    (folder / "links").write_text(LINKED.format(one=one))
    tool = folder / "nvidia-smi"
    tool.write_text(
        f'#!/bin/sh\ncase "$1" in topo) exec /bin/cat {folder}/links;; *) exec /bin/cat {folder}/rows;; esac\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def b200(free: int = 182_600, driver: str = "580.95.05") -> str:
    return B200.format(free=free, driver=driver)


def findings(*gpus: int) -> dict[str, Finding]:
    setup = kimi("no-hicache")
    rows = inspected(plan_of(setup), launch_of(setup, port=20_000, gpus=gpus), has_folder=True)
    return {row.what: row for row in rows}


def test_a_machine_that_is_as_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(tmp_path, monkeypatch, [b200()] * 4)
    assert [(card.index, card.free_mib) for card in cards()] == [(n, 182_600) for n in range(4)]
    found = findings()
    assert found["gpus"].words == "4 x NVIDIA B200"
    states = {what: row.state for what, row in found.items() if what != "ports"}
    assert states == dict.fromkeys(("gpus", "free memory", "driver", "nvlink", "host memory"), "ok")


@pytest.mark.parametrize(
    ("rows", "what", "fault"),
    [
        ([b200()] * 3, "gpus", ("gpu-missing", "4 are needed, 3 of 3 are there")),
        (
            ["NVIDIA H200, 143771, 143000, 580.1"] * 4,
            "gpus",
            ("gpu-missing", "is NVIDIA H200, the plan is for b200"),
        ),
        (["NVIDIA GB2000, 1, 1, 580"] * 4, "gpus", ("gpu-missing", "is NVIDIA GB2000")),
        (
            [*[b200()] * 3, b200(free=90_000)],
            "free memory",
            ("gpu-busy", "GPU 3 has 90,000 of 183,359 MiB"),
        ),
        (
            [b200(driver="570.10")] * 4,
            "driver",
            ("driver-old", "570.10: SGLang's wheels are for CUDA 13"),
        ),
    ],
)
def test_what_a_machine_lacks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[str],
    what: str,
    fault: tuple[str, str],
) -> None:
    machine(tmp_path, monkeypatch, rows)
    row = findings()[what]
    assert (row.state, row.code) == ("fail", fault[0])
    assert fault[1] in row.words


def test_only_the_gpus_that_are_given_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(tmp_path, monkeypatch, [*[b200(free=10)] * 4, *[b200()] * 4])
    assert findings(4, 5, 6, 7)["free memory"].state == "ok"
    assert findings()["free memory"].code == "gpu-busy"
    assert findings(5, 6, 7, 8)["gpus"].code == "gpu-missing"


def test_gpus_without_a_link_between_them_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(tmp_path, monkeypatch, [b200()] * 4, one="SYS")
    assert unlinked([0, 1, 2, 3]) == [(0, 3)]
    row = findings()["nvlink"]
    assert row.state == "note"
    assert row.words.startswith("GPUs 0 and 3 have none")


def test_a_tool_that_says_nonsense_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(tmp_path, monkeypatch, ["[N/A], x", "", "1,2,3,4,5,6,7"])
    assert cards() == []
    assert findings()["gpus"].state == "note"


def test_without_a_gpu_the_sizes_are_told_and_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    setup = kimi()
    rows = inspected(plan_of(setup), launch_of(setup, port=20_000), has_folder=False)
    states = {row.what: row.state for row in rows if row.what != "ports"}
    assert "fail" not in states.values()
    assert {"gpus", "host memory", "disk"} == set(states)


def test_the_hosts_memory_is_read() -> None:
    total, free = total_gib(), free_cpu_gib()
    assert total is not None
    assert free is not None
    assert 0 < free <= total

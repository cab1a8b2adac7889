"""Whether this machine can take a launch: GPUs, driver, links, memory, disk and ports."""

from __future__ import annotations

import errno
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from replica.hardware.gpus import GIB
from replica.machine.gpus import cards, unlinked
from replica.machine.memory import total_gib
from replica.machine.ports import bind_failure, holder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.engines.base import Launch
    from replica.machine.gpus import Card
    from replica.plan.figures import Plan

DRIVER_MIN: Final = 580
"""SGLang 0.5.23's wheels are for CUDA 13."""
_FREE_SHARE: Final = 0.97
"""Of a GPU that nobody else uses: the driver keeps a little."""
_HOST_RESERVE_GB: Final = 10 * GIB / 1e9
"""SGLang leaves this much of the host's memory alone."""
_HUB: Final = Path("~/.cache/huggingface")

State = Literal["ok", "fail", "note"]


@dataclass(slots=True, frozen=True)
class Finding:
    """One thing that was looked at; ``code`` says which fault it is where it fails."""

    what: str
    state: State
    words: str
    code: str | None = None


def inspected(plan: Plan, launch: Launch, *, has_folder: bool) -> list[Finding]:
    """Look at the machine; ``has_folder`` is whether the model is here already."""
    is_for_gpu = plan.setup.gpu is not None
    seen = cards() if is_for_gpu else []
    found: list[Finding] = list(_gpus(plan, launch, seen)) if is_for_gpu else []
    # Without a GPU it is not the machine that the plan is for: its sizes are told, not judged.
    is_judged = bool(seen) or not is_for_gpu
    sized = list(_host_memory(plan)) + ([] if has_folder else [_disk(plan)])
    found += sized if is_judged else [_told(each) for each in sized]
    found += _ports(launch)
    return found


def _told(finding: Finding) -> Finding:
    return finding if finding.state == "ok" else Finding(finding.what, "note", finding.words)


def _gpus(plan: Plan, launch: Launch, seen: list[Card]) -> Iterator[Finding]:
    setup = plan.setup
    if not seen:
        yield Finding("gpus", "note", "no GPU is seen here (nvidia-smi): not inspected")
        return
    chosen = [card for card in seen if not launch.gpus or card.index in launch.gpus]
    chosen = chosen if launch.gpus else chosen[: setup.tp]
    missing = [index for index in launch.gpus if index not in {card.index for card in seen}]
    other = [card for card in chosen if not card.is_kind(setup.device)]
    if missing or len(chosen) < setup.tp:
        words = f"{setup.tp} are needed, {len(chosen)} of {len(seen)} are there: use another --tp or --gpus"
        yield Finding("gpus", "fail", words, "gpu-missing")
    elif other:
        words = (
            f"GPU {other[0].index} is {other[0].name}, the plan is for {setup.device}: give --gpu"
        )
        yield Finding("gpus", "fail", words, "gpu-missing")
    else:
        yield Finding("gpus", "ok", f"{len(chosen)} x {chosen[0].name}")
    if chosen:
        yield _free(chosen)
        yield _driver(chosen[0])
        apart = unlinked([card.index for card in chosen])
        if apart:
            words = (
                f"GPUs {apart[0][0]} and {apart[0][1]} have none between them: steps will be slower"
            )
            yield Finding("nvlink", "note", words)
        elif len(chosen) > 1:
            yield Finding("nvlink", "ok", "joins them all")


def _free(chosen: list[Card]) -> Finding:
    least = min(chosen, key=lambda card: card.free_mib / max(1, card.total_mib))
    words = f"GPU {least.index} has {least.free_mib:,} of {least.total_mib:,} MiB free"
    if least.free_mib < least.total_mib * _FREE_SHARE:
        remedy = ": end what else runs there, or choose others with --gpus"
        return Finding("free memory", "fail", words + remedy, "gpu-busy")
    return Finding("free memory", "ok", words)


def _driver(card: Card) -> Finding:
    major = card.driver.partition(".")[0]
    if major.isdigit() and int(major) < DRIVER_MIN:
        words = f"{card.driver}: SGLang's wheels are for CUDA 13, which needs {DRIVER_MIN} or newer"
        return Finding("driver", "fail", words, "driver-old")
    return Finding("driver", "ok", card.driver)


def _host_memory(plan: Plan) -> Iterator[Finding]:
    total = total_gib()
    if total is None:
        return
    has_gb = total * GIB / 1e9
    words = f"the host tier pins {plan.host_gb:,.0f} GB, the machine has {has_gb:,.0f}"
    if not plan.host_capacity_tokens:
        yield Finding("host memory", "ok", f"{has_gb:,.0f} GB, no host tier")
    elif plan.host_gb + _HOST_RESERVE_GB > has_gb:
        remedy = ": lower host_gb_per_rank, or use a variant without a host tier"
        yield Finding("host memory", "fail", words + remedy, "host-memory")
    else:
        yield Finding("host memory", "ok", words)


def _disk(plan: Plan) -> Finding:
    place = _HUB.expanduser()
    while not place.exists():
        place = place.parent
    free_gb = shutil.disk_usage(place).free / 1e9
    share = plan.setup.footprint
    needs_gb = (share.target_bytes + share.draft_bytes) * plan.setup.tp / 1e9
    words = (
        f"{free_gb:,.0f} GB free at {place}, about {needs_gb:,.0f} GB of weights are not here yet"
    )
    if free_gb > needs_gb:
        return Finding("disk", "note", words)
    return Finding(
        "disk", "fail", words + ": make room, or give a folder with --model-path", "disk-short"
    )


def _ports(launch: Launch) -> Iterator[Finding]:
    taken = [
        (port, fault)
        for n, port in enumerate(launch.ports)
        if (fault := _bind_fault(launch.host if n == 0 else "", port)) is not None
    ]
    for port, fault in taken:
        words = f"{port} cannot be bound: {fault}; end what has it, or choose another with --port"
        yield Finding("ports", "fail", words, "port-taken")
    if not taken:
        yield Finding("ports", "ok", ", ".join(map(str, launch.ports)))


def _bind_fault(host: str, port: int) -> str | None:
    """Why an engine could not listen there, and who does; None if it could."""
    failure = bind_failure(host, port)
    if failure is None:
        return None
    if failure.errno != errno.EADDRINUSE:
        return str(failure.strerror or failure)
    who = holder(port)
    return "it is taken" if who is None else f"it is taken by {who}"

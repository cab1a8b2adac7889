"""Rounds of measurements: every target in every round, in an order that changes with the round."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from bench.cases import CASES, templates
from bench.load import Plan, Result
from bench.machine import Machine, machine
from bench.targets import ROOT, BenchError, Cpus, child_env, target, upstreams

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.peers import Tools

_ALONE_SHARE: Final = 0.25
_GRACE_S: Final = 60.0


class Options(msgspec.Struct, frozen=True):
    """What to run; ``connections`` 0 takes each case's own number."""

    cases: list[str]
    targets: list[str]
    rounds: int = 5
    seconds: float = 20.0
    warmup_s: float = 3.0
    connections: int = 0
    is_pinned: bool = False


class Sample(msgspec.Struct, frozen=True):
    """One target in one round of one case."""

    case: str
    target: str
    round: int
    result: Result


class Run(msgspec.Struct, tag="relay", tag_field="kind"):
    """Everything a run measured; ``body_bytes`` is each case's mean request body."""

    machine: Machine
    options: Options
    skipped: list[str]
    body_bytes: dict[str, int]
    samples: list[Sample]


def order(targets: Sequence[str], number: int) -> list[str]:
    """The targets as round ``number`` takes them: rotated, and reversed in every other round."""
    at = number % len(targets)
    turned = [*targets[at:], *targets[:at]]
    return turned[::-1] if number % 2 else turned


async def measure(options: Options, tools: Tools, json_path: Path | None) -> Run:
    """Run all rounds; what is there is written to ``json_path`` after each measurement.

    Raises:
        BenchError: a process failed or an answer was wrong.
    """
    cpus = Cpus.pinned() if options.is_pinned else Cpus()
    run = Run(
        machine=machine(peers=tools.versions),
        options=options,
        skipped=tools.skipped,
        body_bytes={name: _mean_bytes(name) for name in options.cases},
        samples=[],
    )
    for number, case_name, name in _steps(options):
        result = await _measure_one(case_name, name, options, tools, cpus)
        run.samples.append(Sample(case_name, name, number, result))
        print(
            f"round {number + 1}/{options.rounds}  {case_name:<6} {name:<14}"
            f"{result.requests / result.window_s:9.1f} requests/s",
            file=sys.stderr,
        )
        if json_path is not None:
            save(run, json_path)
    return run


def save(run: msgspec.Struct, path: Path) -> None:
    """Write a run as JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")


def _steps(options: Options) -> Iterator[tuple[int, str, str]]:
    for number in range(options.rounds):
        for case_name in options.cases:
            for name in order(options.targets, number):
                yield number, case_name, name


def _mean_bytes(case_name: str) -> int:
    sizes = [body.size_bytes for bodies in templates(CASES[case_name]) for body in bodies]
    return round(sum(sizes) / len(sizes))


async def _measure_one(
    case_name: str, name: str, options: Options, tools: Tools, cpus: Cpus
) -> Result:
    case = CASES[case_name]
    with tempfile.TemporaryDirectory(prefix="homeport-bench-") as place:
        folder = Path(place)
        async with (
            upstreams(case.answer, folder, cpus) as replicas,
            target(name, replicas, folder, tools, cpus) as started,
        ):
            plan = Plan(
                case=case_name,
                addresses=started.addresses,
                warmup_s=options.warmup_s,
                seconds=options.seconds,
                alone_s=0.0 if case.unit == "event" else options.seconds * _ALONE_SHARE,
                pid=started.pid,
                connections=options.connections,
            )
            return await _load(plan, cpus, what=f"{case_name}, {name}")


async def _load(plan: Plan, cpus: Cpus, *, what: str) -> Result:
    """Run the load generator as a process of its own."""
    argv = [sys.executable, "-m", "bench.load", msgspec.json.encode(plan).decode()]
    if cpus.others is not None:
        argv = ["taskset", "-c", ",".join(map(str, sorted(cpus.others))), *argv]
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=child_env(),
    )
    try:
        async with asyncio.timeout(plan.warmup_s + plan.seconds + plan.alone_s + _GRACE_S):
            out, err = await process.communicate()
    except TimeoutError:
        raise BenchError(f"{what}: the load generator did not end") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise BenchError(f"{what}: {err.decode(errors='replace').strip()}")
    return msgspec.json.decode(out, type=Result)

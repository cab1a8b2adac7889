"""Replays recorded Claude Code sessions against emulated replicas behind the real router.

Fleet and router run as processes; times are engine seconds. Each lane starts its first trace at a
random point between 25 and 75 % of it, and its first request is counted like any other: cold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from replica.hardware.profiles import PROFILES
from sim.live.children import ChildError, Children, child_failures
from sim.live.fleet_client import Fleet, FleetClient
from sim.live.load import Load, LoadOptions
from sim.live.stack import StackOptions, start_stack
from sim.workload.replay import TraceReplay
from sim.workload.traces.errors import TraceError
from sim.workload.traces.model import CONTEXT_TOKENS_MAX, GAP_S_MAX, Limits
from sim.workload.weka import sample_traces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.workload.weka import Trace

_TRACES_PER_LANE = 3
_PROGRESS_S = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code: 0, 1 if a process died, 2 if the data cannot be read."""
    options = _parser().parse_args(arguments)
    limits = Limits(context_tokens_max=options.context_max, gap_s_max=options.gap_max)
    try:
        traces = sample_traces(
            options.data,
            count=options.sessions * _TRACES_PER_LANE,
            seed=options.seed,
            limits=limits,
        )
    except TraceError as error:
        print(f"bench.sessions: {error}", file=sys.stderr)
        return 2
    if options.record is not None:
        options.record.mkdir(parents=True, exist_ok=True)
    results = []
    for policy in options.policy or ["home"]:
        failures: list[str] = []
        try:
            results.append(asyncio.run(_measure(policy, traces, options)))
        except* ChildError as group:
            failures = child_failures(group)
        for failure in failures:
            print(f"bench.sessions: {failure}", file=sys.stderr)
        if failures:
            return 1
    _print(results, options)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


async def _measure(
    policy: str, traces: Sequence[Trace], options: argparse.Namespace
) -> dict[str, object]:
    gpu, tp, kv_dtype = options.profile.split("-")
    stack_options = StackOptions(
        replicas=options.replicas,
        time_scale=options.time_scale,
        policy=policy,
        hardware=("--gpu", gpu, "--tp", tp.removeprefix("tp"), "--kv-dtype", kv_dtype),
        record=None if options.record is None else str(options.record / f"{policy}.rec"),
    )
    async with Children() as children:
        stack = await start_stack(children, stack_options)
        load = Load(
            TraceReplay(
                traces,
                lanes=options.sessions,
                seed=options.seed,
                context_tokens_max=options.context_max,
            ),
            LoadOptions(
                base_url=stack.base_url,
                lanes=options.sessions,
                time_scale=options.time_scale,
                requests_max=options.warmup + options.requests,
                warmup_requests=options.warmup,
            ),
        )
        began_s = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            progress = group.create_task(_progress(policy, load))
            await load.run()
            progress.cancel()
        wall_s = asyncio.get_running_loop().time() - began_s
        async with FleetClient(stack.admin_url) as client:
            fleet = await client.fleet() or Fleet()
    return {
        "policy": policy,
        "replicas": options.replicas,
        "lanes": options.sessions,
        "time_scale": options.time_scale,
        "seed": options.seed,
        "warmup": options.warmup,
        "profile": options.profile,
        "context_tokens_max": options.context_max,
        "gap_s_max": options.gap_max,
        "engine_s": wall_s * options.time_scale,
        **load.tally.summary().as_dict(),
        "moves": fleet.totals.moves,
        "splits": fleet.totals.splits,
    }


async def _progress(policy: str, load: Load) -> None:
    while True:
        await asyncio.sleep(_PROGRESS_S)
        print(
            f"{policy}: {load.tally.n_requests} requests counted, {load.n_inflight} running",
            file=sys.stderr,
        )


def _print(results: Sequence[dict[str, object]], options: argparse.Namespace) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    console.print(
        f"{options.sessions} sessions on {options.replicas} {options.profile} replicas, "
        f"seed {options.seed}, {options.warmup} requests of warm-up, contexts cut at {options.context_max}, gaps capped at "
        f"{options.gap_max:g} s; times in engine seconds ({options.time_scale:g} a wall second)",
        soft_wrap=True,
    )
    table = Table()
    table.add_column("")
    rows: dict[str, list[str]] = {}
    for result in results:
        table.add_column(str(result["policy"]), justify="right")
        for name, value in _cells(result).items():
            rows.setdefault(name, []).append(value)
    for name, values in rows.items():
        table.add_row(name, *values)
    console.print(table)


def _cells(result: dict[str, object]) -> dict[str, str]:
    def ratio(name: str) -> str:
        value = result[name]
        return f"{100.0 * value:.2f} %" if isinstance(value, float) else "-"

    ttft_s = result["ttft_s"]
    spread = ttft_s if isinstance(ttft_s, dict) else {}
    shares = result["per_replica"]
    counts = list(shares.values()) if isinstance(shares, dict) else []
    return {
        "requests": str(result["requests"]),
        "mean prompt tokens": f"{result['mean_prompt_tokens']:,.0f}",
        "hit ratio": ratio("hit_ratio"),
        "hit ratio of an infinite cache": ratio("hit_ratio_ceiling"),
        **{f"TTFT {name}": f"{value:.2f} s" for name, value in spread.items()},
        "errors": str(result["errors"]),
        **_error_rows(result["error_kinds"]),
        "retries": str(result["retries"]),
        "moves": str(result["moves"]),
        "requests a replica": " ".join(map(str, counts)),
        "engine time": f"{result['engine_s']:.0f} s",
    }


def _error_rows(kinds: object) -> dict[str, str]:
    if not isinstance(kinds, dict):
        return {}
    return {f"  {kind[:60]}": str(count) for kind, count in list(kinds.items())[:5]}


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not 1 or more")
    return value


def _above_zero(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{value} is not a number above 0")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.sessions", description=__doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="traces: .tar.xz, folder or .json file")
    add("--sessions", type=_positive, default=40, help="lanes, each playing one session at a time")
    add("--replicas", type=_positive, default=4)
    add("--time-scale", type=_above_zero, default=20.0, help="engine seconds per wall second")
    add("--policy", action="append", help="may be repeated; default: home")
    add("--requests", type=_positive, default=600, help="requests to count, over all lanes")
    add("--warmup", type=int, default=0, help="requests before those, not counted")
    add("--seed", type=int, default=1)
    add("--profile", default="b200-tp4-fp8", choices=sorted(PROFILES))
    add("--context-max", type=_positive, default=CONTEXT_TOKENS_MAX, help="contexts are cut there")
    add("--gap-max", type=_above_zero, default=GAP_S_MAX, help="pauses are capped there, seconds")
    add("--record", type=Path, help="folder for the router's recordings, POLICY.rec each")
    add("--json", type=Path, help="also write the results to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())

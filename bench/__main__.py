"""``python -m bench``: the relay's cost; ``facts``: a decision's; ``memory``: a client's; ``observe``; ``report``."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.table import Table

from bench import facts, memory, observe, peers, relay, tables, targets
from bench.cases import CASES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.peers import Tools
    from bench.tables import Sheet

_WIDTH = 170
_SECONDS_MAX = 3_600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the first word names; answers the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    commands = {"facts": _facts, "memory": _memory, "observe": _observe, "report": _report}
    if words and words[0] in commands:
        return commands[words[0]](words[1:])
    return _relay(words)


def _relay(words: Sequence[str]) -> int:
    """Measure the targets side by side."""
    options = _relay_parser().parse_args(words)
    tools = peers.find_tools(options.peer_python or [sys.executable])
    wanted = _wanted(options.target, tools)
    if wanted is None:
        return 2
    plan = relay.Options(
        cases=options.case or list(CASES),
        targets=wanted,
        rounds=options.rounds,
        seconds=options.seconds,
        warmup_s=options.warmup,
        connections=options.connections,
        is_pinned=options.pin,
    )
    try:
        run = asyncio.run(relay.measure(plan, tools, options.json))
    except targets.BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    _print(tables.machine_lines(run.machine), list(tables.relay_sheets(run)))
    return 0


def _facts(words: Sequence[str]) -> int:
    """Measure a decision's CPU time."""
    parser = argparse.ArgumentParser(prog="python -m bench facts", description=facts.__doc__)
    parser.add_argument("--iterations", type=_count, default=2_000)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--profile", action="store_true", help="show where the time goes instead")
    parser.add_argument("--record", action="store_true", help="with a core that is recorded")
    options = parser.parse_args(words)
    if options.profile:
        facts.profile(options.iterations)
        return 0
    run = facts.measure(options.iterations, is_recorded=options.record)
    if options.json:
        relay.save(run, options.json)
    _print(tables.machine_lines(run.machine), [tables.facts_sheet(run)])
    return 0


def _memory(words: Sequence[str]) -> int:
    """Measure what an idle connection and a stream take."""
    parser = argparse.ArgumentParser(prog="python -m bench memory", description=memory.__doc__)
    _add_targets(parser)
    parser.add_argument("--idle", type=int, default=9_000, help="idle connections; 0: none")
    parser.add_argument("--streams", type=int, default=2_000, help="open streams; 0: none")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args(words)
    tools = peers.find_tools(options.peer_python or [sys.executable])
    wanted = _wanted(options.target, tools)
    if wanted is None:
        return 2
    try:
        run = asyncio.run(memory.measure(wanted, tools, idle=options.idle, streams=options.streams))
    except targets.BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if options.json:
        relay.save(run, options.json)
    _print(tables.machine_lines(run.machine), [tables.memory_sheet(run)])
    return 0


def _observe(words: Sequence[str]) -> int:
    """Measure what observing an idle fleet takes."""
    parser = argparse.ArgumentParser(prog="python -m bench observe", description=observe.__doc__)
    parser.add_argument("--replicas", type=_count, default=200)
    parser.add_argument("--rounds", type=_count, default=3)
    parser.add_argument("--seconds", type=_seconds, default=20.0, help="the window of a round")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args(words)
    measuring = observe.measure(
        replicas=options.replicas, rounds=options.rounds, seconds=options.seconds
    )
    try:
        run = asyncio.run(measuring)
    except targets.BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if options.json:
        relay.save(run, options.json)
    _print(tables.machine_lines(run.machine), [tables.observe_sheet(run)])
    return 0


def _wanted(named: Sequence[str] | None, tools: Tools) -> list[str] | None:
    """The targets to measure, the baseline first; None if one is named that is not here."""
    known = targets.known_targets(tools)
    for line in tools.skipped:
        print(f"bench: {line}", file=sys.stderr)
    if missing := [name for name in named or () if name not in known]:
        print(
            f"bench: not here: {', '.join(missing)}; there are {', '.join(known)}", file=sys.stderr
        )
        return None
    return [name for name in known if name in (named or known)]


def _report(words: Sequence[str]) -> int:
    """Print a run's tables as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench report")
    parser.add_argument("file", type=Path, help="what --json has written")
    options = parser.parse_args(words)
    try:
        run = msgspec.json.decode(options.file.read_bytes(), type=tables.AnyRun)
    except (OSError, msgspec.DecodeError) as error:
        print(f"bench report: {options.file}: {error}", file=sys.stderr)
        return 2
    sheets = tables.sheets(run)
    print("  \n".join(tables.machine_lines(run.machine)))
    for sheet in sheets:
        print(f"\n{tables.markdown(sheet)}")
    return 0


def _print(lines: Sequence[str], sheets: Sequence[Sheet]) -> None:
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
    for line in lines:
        console.print(line)
    for sheet in sheets:
        table = Table(title=sheet.title, title_justify="left")
        for at, name in enumerate(sheet.columns):
            table.add_column(name, justify="right" if at else "left")
        for row in sheet.rows:
            table.add_row(*row)
        console.print(table)


def _relay_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="CPU time per request of the router and its peers, and the latency they add. "
        "Other commands: facts, memory, observe, report FILE.json; and python -m bench.sessions.",
    )
    add = parser.add_argument
    add("--case", action="append", choices=list(CASES), help="may be repeated; default: all")
    _add_targets(parser)
    add("--rounds", type=_count, default=5)
    add("--seconds", type=_seconds, default=20.0, help="the window that is measured")
    add("--warmup", type=_seconds, default=3.0, help="seconds before it")
    add("--connections", type=int, default=0, help="requests in flight; default: the case's own")
    add("--pin", action="store_true", help="the router alone on one CPU, all else on the others")
    add("--json", type=Path, help="also write the results to this file")
    return parser


def _add_targets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target",
        action="append",
        metavar="NAME",
        help="may be repeated; default: direct, haproxy, nginx, homeport, homeport-full (with "
        "access log, keys and limits), sglang-router, smg, where they are installed",
    )
    parser.add_argument(
        "--peer-python",
        action="append",
        metavar="PYTHON",
        help="an interpreter that has sglang-router or smg; may be repeated; default: this one",
    )


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.0 < value < _SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"must be between 0 and {_SECONDS_MAX:g}")
    return value


if __name__ == "__main__":
    sys.exit(main())

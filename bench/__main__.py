"""``python -m bench``: the relay's cost; ``bench facts``: a decision's; ``bench report``: tables."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.table import Table

from bench import facts, peers, relay, tables, targets
from bench.cases import CASES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.tables import Sheet

_WIDTH = 170
_SECONDS_MAX = 3_600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the first word names; answers the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    commands = {"facts": _facts, "report": _report}
    if words and words[0] in commands:
        return commands[words[0]](words[1:])
    return _relay(words)


def _relay(words: Sequence[str]) -> int:
    """Measure the targets side by side."""
    options = _relay_parser().parse_args(words)
    tools = peers.find_tools(options.peer_python or [sys.executable])
    known = targets.known_targets(tools)
    wanted = options.target or known
    for line in tools.skipped:
        print(f"bench: {line}", file=sys.stderr)
    if missing := [name for name in wanted if name not in known]:
        print(
            f"bench: not here: {', '.join(missing)}; there are {', '.join(known)}", file=sys.stderr
        )
        return 2
    plan = relay.Options(
        cases=options.case or list(CASES),
        targets=[name for name in known if name in wanted],
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


def _report(words: Sequence[str]) -> int:
    """Print a run's tables as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench report")
    parser.add_argument("file", type=Path, help="what --json has written")
    options = parser.parse_args(words)
    try:
        run = msgspec.json.decode(options.file.read_bytes(), type=relay.Run | facts.FactsRun)
    except (OSError, msgspec.DecodeError) as error:
        print(f"bench report: {options.file}: {error}", file=sys.stderr)
        return 2
    sheets = (
        list(tables.relay_sheets(run)) if isinstance(run, relay.Run) else [tables.facts_sheet(run)]
    )
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
        "Other commands: facts, report FILE.json; and python -m bench.sessions.",
    )
    add = parser.add_argument
    add("--case", action="append", choices=list(CASES), help="may be repeated; default: all")
    add(
        "--target",
        action="append",
        metavar="NAME",
        help="may be repeated; default: direct, haproxy, nginx, homeport, homeport-log (with its "
        "access log), sglang-router, smg, where they are installed",
    )
    add("--rounds", type=_count, default=5)
    add("--seconds", type=_seconds, default=20.0, help="the window that is measured")
    add("--warmup", type=_seconds, default=3.0, help="seconds before it")
    add("--connections", type=int, default=0, help="requests in flight; default: the case's own")
    add("--pin", action="store_true", help="the router alone on one CPU, all else on the others")
    add(
        "--peer-python",
        action="append",
        metavar="PYTHON",
        help="an interpreter that has sglang-router or smg; may be repeated; default: this one",
    )
    add("--json", type=Path, help="also write the results to this file")
    return parser


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

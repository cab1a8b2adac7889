"""The options that commands of the simulator share, and what they make: one command to run."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sim.jobs.commands import Asked, Outcome
    from sim.scenario.draft import Draft

Name = Annotated[
    str,
    typer.Argument(metavar="SCENARIO", help="A shipped scenario's name, or a .toml file."),
]
Policies = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Instead of the scenario's; `all`: every one there is."),
]
Trace = Annotated[
    Path | None,
    typer.Option(help="Recorded traffic to play (see `homeport trace stats`)."),
]
Seed = Annotated[int | None, typer.Option(help="Instead of the scenario's.", min=0)]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change the scenario; repeatable. `homeport sim keys` lists the keys.",
    ),
]
VariantName = Annotated[
    str | None, typer.Option("--variant", metavar="NAME", help="One of the scenario's variants.")
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write all figures there.")]
HtmlFile = Annotated[
    Path | None, typer.Option("--html", help="Also write a page with plots there.")
]
Jobs = Annotated[
    int | None,
    typer.Option(help="Processes at once; default: one a core.", min=1, max=256),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder where finished runs are kept and found again; default: beside --json.",
    ),
]


class Given(NamedTuple):
    """What the options say."""

    name: str
    policies: str | None = None
    trace: Path | None = None
    seed: int | None = None
    sets: list[str] | None = None
    variant: str | None = None
    json_file: Path | None = None
    html_file: Path | None = None
    jobs: int | None = None
    resume: Path | None = None


def asked_of(
    given: Given,
    command: str,
    *,
    options: Sequence[str] = (),
    slo: Mapping[str, float | None] | None = None,
    is_kept: bool = False,
) -> Asked:
    """The command: the scenario with everything set, and targets that can be written.

    ``options`` are those that only this command has, as words; ``slo`` says its own.

    Raises:
        ScenarioError: the scenario cannot be found or read, or a flag is impossible.
    """
    from sim.jobs.batch import Batch
    from sim.jobs.commands import Asked
    from sim.jobs.keeping import Kept
    from sim.jobs.results import check_writable
    from sim.scenario.errors import ScenarioError

    draft = _set(given)
    words = tuple(_words(given))
    arguments = [command, *words, *options]
    if given.policies is not None:
        arguments += ["--policies", given.policies]
    for key, value in (slo or {}).items():
        if value is not None:
            limit = ("--" + key.removesuffix("_s").replace("_", "-"), f"{value:g}")
            draft = draft.with_value(f"slo.{key}", value, by=" ".join(limit))
            arguments += limit
    draft.scenario()
    check_writable("--json", given.json_file)
    check_writable("--html", given.html_file)
    kept = None
    folder = given.resume
    if is_kept and folder is None and given.json_file is not None:
        folder = given.json_file.with_name(f"{given.json_file.name}.runs")
    if folder is not None:
        kept = Kept(folder)
        try:
            kept.prepare()
        except (OSError, ValueError) as failure:
            why = getattr(failure, "strerror", None) or str(failure)
            raise ScenarioError(f"--resume {folder}: cannot be written: {why}") from failure
        say(f"finished runs are kept in {folder}: interrupted, the same command goes on")
    batch = Batch(given.jobs or os.cpu_count() or 1, say, kept)
    return Asked(draft, words, batch, tuple(arguments))


def _set(given: Given) -> Draft:
    from router.policy.registry import POLICIES
    from sim.scenario.draft import value_of
    from sim.scenario.errors import ScenarioError
    from sim.scenario.finding import draft_named
    from sim.workload.traces.errors import shown

    draft = draft_named(given.name)
    if given.variant is not None:
        draft = draft.varied(given.variant, by=f"--variant {given.variant}")
    for text in given.sets or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ScenarioError(f"--set {shown(text)}: not KEY=VALUE, as in fleet.replicas=8")
        draft = draft.with_value(key.strip(), value_of(value.strip()), by=f"--set {text}")
    if given.policies is not None:
        names = ",".join(POLICIES) if given.policies == "all" else given.policies
        draft = draft.with_value("policies", names, by="--policies")
    if given.trace is not None:
        path = str(given.trace.absolute())
        draft = draft.with_value("workload.trace", path, by=f"--trace {given.trace}")
    if given.seed is not None:
        draft = draft.with_value("seed", given.seed, by=f"--seed {given.seed}")
    return draft


def _words(given: Given) -> Iterator[str]:
    """What names the same runs again, without policies and targets."""
    yield given.name
    if given.variant is not None:
        yield from ("--variant", given.variant)
    for text in given.sets or ():
        yield from ("--set", text)
    if given.trace is not None:
        yield from ("--trace", str(given.trace))
    if given.seed is not None:
        yield from ("--seed", str(given.seed))


def say(words: str) -> None:
    """Progress: on stderr, so that stdout is the same for every run of one seed."""
    print(words, file=sys.stderr, flush=True)


@contextmanager
def told() -> Iterator[None]:
    """What goes wrong is one line and an exit code: 2 for bad input, 1 for a run that failed."""
    from sim.jobs.errors import RunError
    from sim.scenario.errors import ScenarioError

    try:
        yield
    except RunError as failure:
        say(f"homeport sim: {failure}")
        if failure.is_input:
            raise typer.Exit(2) from None
        if failure.repeat:
            say(f"to repeat it: {failure.repeat}")
        raise typer.Exit(1) from None
    except ScenarioError as failure:
        say(f"homeport sim: {failure}")
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        say("homeport sim: interrupted")
        raise typer.Exit(130) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except OSError as failure:
        say(f"homeport sim: {failure}")
        raise typer.Exit(2) from None


def give(outcome: Outcome, given: Given) -> None:
    """Results on stdout, on a terminal the best in bold; then in the files asked for.

    Raises:
        ScenarioError: a file cannot be written.
    """
    from sim.jobs.results import write

    if sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        text = Text("\n".join(outcome.lines))
        text.highlight_regex(r"[^\s]+\*(?=\s)", "bold green")
        Console(highlight=False, soft_wrap=True).print(text)
    else:
        print("\n".join(outcome.lines), flush=True)
    write(outcome.document, json_file=given.json_file, html_file=given.html_file)

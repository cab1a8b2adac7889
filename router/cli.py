"""The command line: the dispatcher of ``homeport``, and the router's own sub-commands.

A sub-command imports what it runs only when it runs, so that ``homeport emulate`` loads no router
and ``homeport check`` no server.
"""

from __future__ import annotations

import inspect
import sys
from importlib.metadata import EntryPoint, entry_points
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from router.commands.running import application
from router.commands.running import run as run_application

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from router.settings import Resolved

_KEYWORD: Final = inspect.Parameter.KEYWORD_ONLY
_GROUP: Final = "homeport.commands"
_CHUNK_BYTES: Final = 64 << 10
_DIFFERENCES: Final = 5
_KEY_LINE_MAX: Final = 4096
_WORDS: Final = {"replica": "URL", "aliases": "NAME=MODEL", "engine_paths": "PATH"}
"""What the values of the flags are that may be repeated."""
_SUMMARIES: Final = {
    "serve": "run the front door",
    "check": "print the resolved settings, each with its source",
    "key": "make an API key, or the hash of one",
    "fleet": "look at a running fleet and steer it",
    "replay": "tell a recording to a fresh core and compare what it decides",
    "replica": "plan, check and launch an engine for a recipe",
    "emulate": "run emulated SGLang replicas",
    "trace": "show what is in recorded traffic",
    "sim": "try routing policies on a simulated fleet",
    "demo": "router, emulated replicas and an agent load on this machine",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sub-command that the arguments name; answers the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    commands = {point.name: point for point in entry_points(group=_GROUP)}
    if not words or words[0] in ("-h", "--help", "help"):
        print(_usage(commands))
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        print(f"homeport {version_of('homeport')}")
        return 0
    point = commands.get(words[0])
    if point is None:
        known = ", ".join(sorted(commands))
        print(f"homeport: no command {words[0]!r}; there are: {known}", file=sys.stderr)
        return 2
    return int(point.load()(words[1:]) or 0)


def _usage(commands: dict[str, EntryPoint]) -> str:
    rows = [f"  {name:<9} {_SUMMARIES.get(name, '')}".rstrip() for name in sorted(commands)]
    return "\n".join(
        [
            "homeport: the front door of a fleet of SGLang replicas for coding agents",
            "",
            "usage: homeport COMMAND [OPTIONS]      (homeport COMMAND --help for its options)",
            "",
            *rows,
        ]
    )


def _scheme(has_tls: bool) -> str:  # noqa: FBT001  (the one thing it says)
    return "https" if has_tls else "http"


def _resolve(config: Path | None, flags: dict[str, Any]) -> Resolved:
    from router.errors import ConfigError
    from router.settings import load

    try:
        return load(flags, config)
    except ConfigError as failure:
        print(f"homeport: {failure}", file=sys.stderr)
        raise typer.Exit(2) from None


def _flags() -> list[inspect.Parameter]:
    """A flag for every setting outside a group; its help and default are the setting's own."""
    from pydantic import BaseModel

    from router.settings import Settings

    flags: list[inspect.Parameter] = []
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            continue
        text = f"{field.description} [{'not set' if default in (None, ()) else default}]"
        kind: object = str | None
        option = typer.Option(help=text, show_default=False)
        if isinstance(default, tuple):
            kind = list[str]
            text = f"{field.description}; repeatable"
            option = typer.Option(help=text, metavar=_WORDS[name], show_default=False)
        elif isinstance(default, bool):
            flag = name.replace("_", "-")
            kind = bool | None
            option = typer.Option(f"--{flag}/--no-{flag}", help=text, show_default=False)
        given: object = [] if isinstance(default, tuple) else None
        annotated: object = Annotated[kind, option]
        flags.append(inspect.Parameter(name, _KEYWORD, default=given, annotation=annotated))
    config = typer.Option(help="a TOML file with any setting", metavar="FILE.toml")
    path: object = Annotated[Path | None, config]
    flags.append(inspect.Parameter("config", _KEYWORD, default=None, annotation=path))
    return flags


def _command(run: Callable[[Resolved], None]) -> Callable[..., None]:
    """A command that takes every setting as a flag and hands ``run`` what they resolve to."""

    def command(**flags: Any) -> None:  # noqa: ANN401  (typer passes what the signature says)
        config = flags.pop("config")
        given = {key: tuple(v) if isinstance(v, list) else v for key, v in flags.items()}
        run(_resolve(config, given))

    parameters = _flags()
    command.__doc__ = run.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {flag.name: flag.annotation for flag in parameters}
    return command


def _run(name: str, command: Callable[..., None], arguments: Sequence[str]) -> int:
    """Run one command; a mistake is one line and exit code 2."""
    app = application()
    app.command()(command)
    return run_application(app, name, arguments)


def serve(arguments: Sequence[str]) -> int:
    """``homeport serve``: run the front door."""

    def run(resolved: Resolved) -> None:
        """Run the front door.

        Settings come from defaults, then the TOML file, then HOMEPORT_* variables, then flags;
        `homeport check` lists all of them.
        """
        from router import wiring
        from router.edge.server import run as run_loop
        from router.errors import ConfigError

        settings = resolved.settings
        has_tls = settings.tls.cert_file is not None

        def announce(port: int, admin_port: int) -> None:
            print(
                f"router ready url={_scheme(has_tls)}://{settings.host}:{port} "
                f"admin_url={_scheme(has_tls and settings.tls.control)}://"
                f"{settings.admin_host}:{admin_port} policy={settings.policy}",
                flush=True,
            )

        try:
            run_loop(wiring.serve(settings, announce))
        except ConfigError as failure:
            print(f"homeport: {failure}", file=sys.stderr)
            raise typer.Exit(2) from None
        except OSError as failure:
            print(
                f"homeport serve: cannot listen on {settings.host}:{settings.port} or "
                f"{settings.admin_host}:{settings.admin_port}: {failure.strerror or failure}",
                file=sys.stderr,
            )
            raise typer.Exit(1) from None

    return _run("serve", _command(run), arguments)


def check(arguments: Sequence[str]) -> int:
    """``homeport check``: print the resolved settings, each with its source."""

    def run(resolved: Resolved) -> None:
        """Print the resolved settings, each with the source of its value.

        Exits with 2 and one line on the first unknown key or impossible value, also where one of
        the files that the settings name cannot be used.
        """
        from router.errors import ConfigError
        from router.guards import check_files

        try:
            check_files(resolved.settings)
        except ConfigError as failure:
            print(f"homeport: {failure}", file=sys.stderr)
            raise typer.Exit(2) from None
        rows = resolved.rows()
        width = max(len(key) for key, _, _ in rows)
        value_width = max(len(value) for _, value, _ in rows)
        for key, value, source in rows:
            print(f"{key:<{width}}  {value:<{value_width}}  {source}")

    return _run("check", _command(run), arguments)


def key(arguments: Sequence[str]) -> int:
    """``homeport key``: make an API key, or the hash of one, for the tenants file."""
    from router.tenants.keys import hash_of, key_fault, new_key
    from router.tenants.model import NAME, NAME_WORDS

    app = application()

    def new(tenant: Annotated[str | None, typer.Argument(help="the tenant's name")] = None) -> None:
        """Make a key, print it once, and the lines for the tenants file."""
        if tenant is not None and not NAME.fullmatch(tenant):
            print(f"homeport key new: a tenant's name {NAME_WORDS}", file=sys.stderr)
            raise typer.Exit(2)
        made = new_key()
        print(f"{made}\n\n# for the tenants file; the key itself is kept nowhere:")
        if tenant is not None:
            print(f'[tenants."{tenant}"]' if "." in tenant else f"[tenants.{tenant}]")
        print(f'keys = ["{hash_of(made)}"]')

    def hashed() -> None:
        """Read a key from standard input and print its hash for the tenants file."""
        given = sys.stdin.readline(_KEY_LINE_MAX).strip()
        if fault := key_fault(given):
            print(f"homeport key hash: {fault}", file=sys.stderr)
            raise typer.Exit(2)
        print(hash_of(given))

    app.command("new")(new)
    app.command("hash")(hashed)
    return run_application(app, "key", arguments)


def replay(arguments: Sequence[str]) -> int:
    """``homeport replay``: tell a recording to a fresh core and compare what it decides."""

    def run(
        file: Annotated[Path, typer.Argument(help="a file that `homeport serve --record` wrote")],
        differences: Annotated[
            int, typer.Option(help="how many differences to print", min=1)
        ] = _DIFFERENCES,
    ) -> None:
        """Tell a recording to a fresh core and compare what it decides.

        Exits with 0 if every decision is as it was recorded, with 1 and the first differences if
        not, with 2 and one line if the file is no recording or is damaged.
        """
        from router.recording.errors import RecordingError
        from router.recording.report import replayed

        try:
            with file.open("rb") as opened:
                chunks = iter(lambda: opened.read(_CHUNK_BYTES), b"")
                maker = f"homeport {version_of('homeport')}"
                report = replayed(chunks, maker=maker, differences_max=differences)
        except OSError as failure:
            print(f"homeport replay: {file}: {failure.strerror or failure}", file=sys.stderr)
            raise typer.Exit(2) from None
        except RecordingError as failure:
            print(f"homeport replay: {file}: {failure}", file=sys.stderr)
            raise typer.Exit(2) from None
        print("\n".join(report.lines))
        raise typer.Exit(1 if report.n_differences else 0)

    return _run("replay", run, arguments)


if __name__ == "__main__":
    sys.exit(main())

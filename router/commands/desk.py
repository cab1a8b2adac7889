"""What the commands of ``homeport fleet`` have in common: how they reach the router, what they print."""

from __future__ import annotations

import asyncio
import functools
import getpass
import inspect
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rich.console import RenderableType

    from router.control.client import AdminClient

_ACTOR_MAX: Final = 128
_REASON_MAX: Final = 500
_WIDE: Final = 200
"""Columns where nobody looks on: a pipe has no width."""

Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="the router's control port [HOMEPORT_ADMIN_URL, else http://127.0.0.1:30080]",
    ),
]
KeyFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="a file with the router's admin key [HOMEPORT_ADMIN_KEY_FILE, HOMEPORT_ADMIN_KEY]",
    ),
]
CaFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="CAs of an https control port [HOMEPORT_ADMIN_CA_FILE, else the system's]",
    ),
]
CertFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="a client certificate, where the port demands one"),
]
CertKeyFile = Annotated[str | None, typer.Option(metavar="FILE", help="its private key")]
AsJson = Annotated[bool, typer.Option("--json", help="print the router's answer as JSON")]
Why = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="why, for the log and `changes`")
]
Actor = Annotated[str | None, typer.Option(metavar="NAME", help="who makes the change [user@host]")]

_COMMON: Final[dict[str, Any]] = {
    "url": Url,
    "key_file": KeyFile,
    "ca_file": CaFile,
    "cert_file": CertFile,
    "cert_key_file": CertKeyFile,
    "as_json": AsJson,
}
_HINTS: Final = {
    "unknown-replica": "; `homeport fleet ls` lists those that are, `add` adds one",
    "unknown-session": "; `homeport fleet sessions` lists the recent ones",
}
"""What to do, where the router's answer speaks of calls."""
_OF_CHANGES: Final[dict[str, Any]] = {"reason": Why, "actor": Actor}


@dataclass(slots=True, frozen=True)
class Desk:
    """One command at work: the router it asks, and how it answers the person."""

    client: AdminClient
    is_json: bool

    async def get(self, *path: str, **query: int) -> dict[str, Any]:
        """Ask the router."""
        return await self.client.call("GET", *path, query=query)

    def show(self, answer: object, shown: str | RenderableType) -> None:
        """Print what was answered: as JSON if so wished, else as it is to be shown."""
        if self.is_json:
            print(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
        elif isinstance(shown, str):
            print(shown)
        else:
            from rich.console import Console

            console = Console(highlight=False)
            if not console.is_terminal:
                console = Console(highlight=False, width=_WIDE)
            console.print(shown)

    def tell(self, text: str) -> None:
        """Say how it goes, beside the answer."""
        print(text, file=sys.stderr, flush=True)


def add(app: typer.Typer, name: str, run: Callable[..., Awaitable[None]]) -> None:
    """Add a command that reads."""
    _add(app, name, run, _COMMON)


def add_change(app: typer.Typer, name: str, run: Callable[..., Awaitable[None]]) -> None:
    """Add a command that changes something, for which somebody is named."""
    _add(app, name, run, _OF_CHANGES | _COMMON)


def _add(
    app: typer.Typer, name: str, run: Callable[..., Awaitable[None]], common: dict[str, Any]
) -> None:
    """A command of ``run``'s parameters but the first, the desk, and the common ones behind them."""
    own = list(inspect.signature(run, eval_str=True).parameters.values())[1:]
    more = [
        inspect.Parameter(
            key,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if kind is AsJson else None,
            annotation=kind,
        )
        for key, kind in common.items()
    ]

    @functools.wraps(run)
    def command(**given: Any) -> None:  # noqa: ANN401  (typer passes what the signature says)
        shared = {key: given.pop(key) for key in common}
        _work(f"homeport fleet {name}", run, given, shared)

    command.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    command.__annotations__ = {row.name: row.annotation for row in (*own, *more)}
    app.command(name)(command)


def _work(
    title: str, run: Callable[..., Awaitable[None]], own: dict[str, Any], shared: dict[str, Any]
) -> None:
    """Run one command; a mistake ends with 2, a refusal or a router that is not there with 1."""
    from router.control.client import AdminClient, AdminError
    from router.errors import ConfigError
    from router.settings.admin import admin_access

    is_json = shared.pop("as_json")
    reason, actor = shared.pop("reason", None), shared.pop("actor", None)

    async def work() -> None:
        access = admin_access(**shared)
        who = _text("--actor", actor, _ACTOR_MAX) or _person()
        why = _text("--reason", reason, _REASON_MAX)
        async with AdminClient(access, actor=who, reason=why) as client:
            await run(Desk(client, is_json), **own)

    try:
        asyncio.run(work())
    except ConfigError as mistake:
        print(f"{title}: {mistake}", file=sys.stderr)
        raise typer.Exit(2) from None
    except AdminError as failure:
        words, hint = str(failure), _HINTS.get(failure.code)
        print(
            f"{title}: {words if hint is None else words.partition(';')[0] + hint}", file=sys.stderr
        )
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        print(f"{title}: interrupted; what was asked for stands", file=sys.stderr)
        raise typer.Exit(130) from None
    except BrokenPipeError:  # the reader has seen enough
        sys.stdout = None
        raise typer.Exit(1) from None


def _text(flag: str, text: str | None, length_max: int) -> str | None:
    from router.errors import ConfigError

    if text is not None and (len(text) > length_max or not text.isprintable()):
        raise ConfigError(f"{flag}: must be one line of at most {length_max} characters")
    return text or None


def _person() -> str:
    """Who runs this, as user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        user = "unknown"
    name = f"{user}@{socket.gethostname()}"[:_ACTOR_MAX]
    return name if name.isprintable() else "unknown"

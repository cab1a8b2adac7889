"""``homeport fleet``: look at a running fleet and steer it, over its router's control API."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from router.commands import running
from router.commands.desk import Desk, add, add_change
from router.commands.values import (
    deadline,
    duration,
    in_words,
    limit,
    pin_time,
    replica_name,
    weight,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOOK_S: Final = 0.5
_WAIT_S: Final = 600.0
_SHOWN: Final = 10
_SESSIONS_MAX: Final = 1_000
_NEW_TOKENS_MAX: Final = 10_000_000
_ROWS: Final = 24

_Replica = Annotated[
    str, typer.Argument(metavar="REPLICA", help="a replica's id, as `ls` shows it")
]
_Session = Annotated[
    str, typer.Argument(metavar="SESSION", help="a session's key, as `sessions` shows it")
]
_Rows = Annotated[int, typer.Option(help="how many at most", min=1, max=_SESSIONS_MAX)]

_HELP: Final = """Look at a running fleet and steer it, over its router's control API.

The router is the one at --url or HOMEPORT_ADMIN_URL, else on this machine. A control port with a key wants it in
HOMEPORT_ADMIN_KEY_FILE, HOMEPORT_ADMIN_KEY or --key-file. Every change is logged by the router with who made it
(--actor) and why (--reason); `changes` lists them.

Exit codes: 0 done, 1 refused by the router or it cannot be reached, 2 a mistake in the command.
"""


def fleet(arguments: Sequence[str]) -> int:
    """``homeport fleet``."""
    app = running.application()
    app.callback(help=_HELP)(lambda: None)
    for name, look in (
        ("ls", _ls),
        ("show", _show),
        ("sessions", _sessions),
        ("session", _session),
        ("explain", _explain),
        ("changes", _changes),
    ):
        add(app, name, look)
    for name, change in (
        ("add", _add),
        ("remove", _remove),
        ("drain", _drain),
        ("undrain", _undrain),
        ("weight", _weight),
        ("limit", _limit),
        ("forget", _forget),
        ("pin", _pin),
        ("unpin", _unpin),
        ("move", _move),
    ):
        add_change(app, name, change)
    return running.run(app, "fleet", arguments)


# Looking


async def _ls(desk: Desk) -> None:
    """List the replicas: state, load, sessions, caches."""
    from router.commands.fleet_tables import fleet_table

    answer = await desk.get("fleet")
    desk.show(answer, fleet_table(answer))


async def _show(desk: Desk, replica: _Replica) -> None:
    """Show one replica. All that is known of it, and its most recent sessions."""
    from router.commands.fleet_tables import replica_sheet

    row = await _row(desk, replica)
    if row is None:
        raise _unknown(replica)
    listed = await desk.get("sessions", limit=_SESSIONS_MAX)
    here = [session for session in listed["sessions"] if session["home"] == replica][:_SHOWN]
    desk.show({**row, "recent_sessions": here}, replica_sheet(row, here))


async def _sessions(
    desk: Desk,
    rows: _Rows = 50,
    replica: Annotated[
        str | None,
        typer.Option(metavar="REPLICA", help="only those at home there, of the last 1,000"),
    ] = None,
) -> None:
    """List the most recent sessions and their homes."""
    from router.commands.fleet_tables import sessions_table

    listed = await desk.get("sessions", limit=rows if replica is None else _SESSIONS_MAX)
    found = [row for row in listed["sessions"] if replica in (None, row["home"])][:rows]
    desk.show({"sessions": found}, sessions_table(found))


async def _session(desk: Desk, session: _Session) -> None:
    """Show one session and its last decisions. Where each request went, why, and at what price."""
    from router.commands.fleet_tables import session_sheet

    view = await desk.get("sessions", session)
    desk.show(view, session_sheet(view))


async def _explain(
    desk: Desk,
    session: _Session,
    new_tokens: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="tokens that the turn adds behind its last prompt and answer",
            min=0,
            max=_NEW_TOKENS_MAX,
        ),
    ] = 0,
    rows: Annotated[int, typer.Option(help="replicas to show at most", min=1)] = _ROWS,
) -> None:
    """Say where a session's next turn would go now, and why there. It changes nothing.

    Of every replica: what the turn would cost there, why it is not that one, and what that rests on.
    """
    from router.explaining.table import lines

    view = await desk.get("sessions", session, "explain", new_tokens=new_tokens)
    desk.show(view, "\n".join(lines(view, rows_max=rows)))


async def _changes(desk: Desk, rows: _Rows = 50) -> None:
    """List what operators changed, who, and why. The last 1,000 changes since the router started are kept."""
    from router.commands.fleet_tables import changes_table

    answer = await desk.get("changes", limit=rows)
    desk.show(answer, changes_table(answer["changes"]))


# Replicas


async def _add(  # noqa: PLR0917  (typer's way: one parameter a flag)
    desk: Desk,
    address: Annotated[
        str, typer.Argument(metavar="REPLICA_URL", help="such as http://10.0.0.7:30000")
    ],
    replica_id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="NAME", parser=replica_name, help="its id; host:port if not given"
        ),
    ] = None,
    inflight_max: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="requests in flight at most", min=1)
    ] = None,
    capacity_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", help="KV tokens it can hold; it is asked if not given", min=1),
    ] = None,
    api_key_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="a file with its API key, if it is not the fleet's"),
    ] = None,
) -> None:
    """Add a replica by its URL. It takes requests once it is seen ready."""
    from router.settings.admin import secret_in

    said = {"id": replica_id, "inflight_max": inflight_max, "capacity_tokens": capacity_tokens}
    body: dict[str, Any] = {"url": address, "source": "operator"}
    body |= {key: value for key, value in said.items() if value is not None}
    if api_key_file is not None:
        body["api_key"] = secret_in("--api-key-file", api_key_file)
    answer = await desk.client.call("POST", "replicas", body=body)
    desk.show(answer, f"{answer['id']} is {answer['state']} at {answer['url']}")


async def _remove(desk: Desk, replica: _Replica) -> None:
    """Forget a replica at once. Its running requests go on to their end."""
    await desk.client.call("DELETE", "replicas", replica)
    desk.show({"id": replica, "removed": True}, f"{replica} is removed")


async def _drain(
    desk: Desk,
    replica: _Replica,
    deadline_s: Annotated[
        float | None,
        typer.Option(
            "--deadline",
            metavar="TIME",
            parser=deadline,
            help="remove it then (5m, 1h; 1d at most), whatever still runs there",
        ),
    ] = None,
    *,
    remove: Annotated[
        bool, typer.Option("--remove", help="remove it once nothing is in flight")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="wait until nothing is in flight there")
    ] = False,
    wait_max: Annotated[
        float | None,
        typer.Option(metavar="TIME", parser=duration, help="for how long --wait waits [10m]"),
    ] = None,
) -> None:
    """Send a replica no new requests. The running ones end, its sessions find other homes.

    It stays and drains until it is undrained, unless --remove or --deadline says otherwise.
    """
    if wait_max is not None and not wait:
        raise typer.BadParameter("says how long --wait waits; add --wait", param_hint="--wait-max")
    body = {"deadline_s": deadline_s, "remove": remove}
    answer = await desk.client.call("POST", "replicas", replica, "drain", body=body)
    if not wait:
        end = "once nothing is in flight, it is removed" if remove else "it stays until undrained"
        if deadline_s is not None:
            last = f"in {in_words(deadline_s)} at the latest"
            end = f"{end}, {last}" if remove else f"it is removed {last}"
        desk.show(answer, f"{replica} is draining, {answer['inflight']} in flight; {end}")
        return
    row = await _emptied(desk, replica, wait_max or _WAIT_S, is_gone=remove)
    what = "removed" if row is None else "drained, nothing in flight"
    desk.show(row or {"id": replica, "removed": True}, f"{replica} is {what}")


async def _emptied(
    desk: Desk, replica: str, wait_max_s: float, *, is_gone: bool
) -> dict[str, Any] | None:
    """Follow a drain until nothing is in flight, or the replica is gone; answers its last row."""
    from router.control.client import AdminError

    loop = asyncio.get_running_loop()
    until_s, told = loop.time() + wait_max_s, -1
    while True:
        row = await _row(desk, replica)
        if row is None:
            return None
        if row["state"] != "draining":
            raise AdminError(f"{replica} is {row['state']} again: somebody has undrained it")
        inflight = row["inflight"]
        if not inflight and not is_gone:
            return row
        if inflight != told:
            desk.tell(f"{replica}: {inflight} in flight")
            told = inflight
        if loop.time() >= until_s:
            raise AdminError(
                f"{replica} still has {inflight} in flight after {in_words(wait_max_s)}; it goes on draining:"
                " wait again with a longer --wait-max, or remove it"
            )
        await asyncio.sleep(min(_LOOK_S, max(0.0, until_s - loop.time())))


async def _undrain(desk: Desk, replica: _Replica) -> None:
    """Let a replica take requests again. It does once it is seen ready."""
    answer = await desk.client.call("POST", "replicas", replica, "undrain")
    desk.show(answer, f"{replica} is {answer['state']}")


async def _weight(
    desk: Desk,
    replica: _Replica,
    share: Annotated[
        float,
        typer.Argument(
            metavar="WEIGHT", parser=weight, help="0.01 to 100, next to peers that have 1"
        ),
    ],
) -> None:
    """Give a replica more or less work than its peers. 0.5 is half of what they get.

    The router must run a policy that prices its choices, as `home` does.
    """
    answer = await desk.client.call("PATCH", "replicas", replica, body={"weight": share})
    desk.show(answer, f"{replica} has weight {answer['weight']:g}")


async def _limit(
    desk: Desk,
    replica: _Replica,
    most: Annotated[
        int,
        typer.Argument(
            metavar="N|none", parser=limit, help="requests in flight at most; none takes it back"
        ),
    ],
) -> None:
    """Bound the requests in flight at a replica. Those beyond a new limit end as they would.

    Taken back with none, the limit that it registered with counts again, else the router's.
    """
    body = {"inflight_max": most or None}
    answer = await desk.client.call("PATCH", "replicas", replica, body=body)
    now = answer["inflight_max"]
    words = "no limit" if now is None else f"a limit of {now}"
    desk.show(answer, f"{replica} has {words}, {answer['inflight']} in flight")


async def _forget(desk: Desk, replica: _Replica) -> None:
    """Believe a replica's cache to be empty. For after a flush by hand: nothing is flushed here."""
    answer = await desk.client.call("POST", "replicas", replica, "forget")
    desk.show(answer, f"{replica} is believed to hold {answer['held_tokens']} tokens")


# Sessions


async def _pin(
    desk: Desk,
    session: _Session,
    replica: _Replica,
    for_s: Annotated[
        float | None,
        typer.Option(
            "--for",
            metavar="TIME",
            parser=pin_time,
            help="unpin it after that (1h, 2d; 30d at most)",
        ),
    ] = None,
) -> None:
    """Send a session to one replica, whatever it costs. While that cannot take it, it goes elsewhere.

    It holds until it is unpinned, for --for, or until the router forgets the session.
    """
    body = {"replica": replica, "for_s": for_s}
    answer = await desk.client.call("PUT", "sessions", session, "pin", body=body)
    ends = "until it is unpinned" if for_s is None else f"for {in_words(for_s)}"
    desk.show(answer, f"{session} is pinned to {answer['pinned']} {ends}")


async def _unpin(desk: Desk, session: _Session) -> None:
    """Let the policy decide about a session again. It keeps its home for now."""
    answer = await desk.client.call("DELETE", "sessions", session, "pin")
    desk.show(answer, f"{session} is not pinned; its home is {answer['home']}")


async def _move(desk: Desk, session: _Session, replica: _Replica) -> None:
    """Make a replica a session's home now. The policy may move it again."""
    answer = await desk.client.call("POST", "sessions", session, "move", body={"replica": replica})
    desk.show(answer, f"{session} has its home at {answer['home']}")


async def _row(desk: Desk, replica: str) -> dict[str, Any] | None:
    """A replica's row in the fleet, None if it is not there."""
    rows = (await desk.get("fleet"))["replicas"]
    return next((row for row in rows if row["id"] == replica), None)


def _unknown(replica: str) -> Exception:
    from router.control.client import AdminError

    return AdminError(f"no replica {replica!r} is known to this router", "unknown-replica")

"""Replicas named in a file, TOML or JSON, that is read again when it changes."""

from __future__ import annotations

import tomllib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from router.control.api.registration import ReplicaFields, spec_of
from router.control.discovery.feed import OFFERS_MAX, Feed
from router.control.reload import Watched
from router.errors import ClientError, ConfigError
from router.state.members.roster import Offer, Source

if TYPE_CHECKING:
    from router.control.discovery.feed import Outlet

_FILE_BYTES_MAX: Final = 4 << 20


class ReplicasFile(msgspec.Struct, forbid_unknown_fields=True):
    """The file; ``replica`` is asked for, so that a file being written (empty yet) empties no fleet."""

    replica: list[ReplicaFields]


def replicas_in(path: str) -> list[Offer]:
    """The replicas in a file: JSON if its name ends so, else TOML.

    Raises:
        ConfigError: it cannot be read, or a field says something impossible; nothing of it counts.
    """
    where = f"replicas file {path}"
    try:
        with Path(path).open("rb") as opened:
            data = opened.read(_FILE_BYTES_MAX + 1)
    except OSError as failure:
        raise ConfigError(f"{where}: {failure.strerror}") from None
    if len(data) > _FILE_BYTES_MAX:
        raise ConfigError(f"{where}: is larger than {_FILE_BYTES_MAX >> 20} MiB")
    rows = _rows(data, where, is_json=path.endswith(".json"))
    if len(rows) > OFFERS_MAX:
        raise ConfigError(f"{where}: names {len(rows)} replicas; at most {OFFERS_MAX} are read")
    found: dict[str, Offer] = {}
    for number, row in enumerate(rows):
        try:
            spec = spec_of(row, Source.FILE)
        except ClientError as failure:
            raise ConfigError(f"{where}: replica[{number}].{failure.message}") from None
        if spec.replica_id in found:
            raise ConfigError(f"{where}: replica[{number}].id: {spec.replica_id!r} is named twice")
        found[spec.replica_id] = Offer(spec)
    return list(found.values())


def _rows(data: bytes, where: str, *, is_json: bool) -> list[ReplicaFields]:
    try:
        if is_json:
            return msgspec.json.decode(data, type=ReplicasFile).replica
        tree = tomllib.loads(data.decode())
        return msgspec.convert(tree, ReplicasFile).replica
    except msgspec.ValidationError as failure:
        hint = "; write `replica = []` to name none" if "`replica`" in f"{failure}" else ""
        raise ConfigError(f"{where}: {failure}{hint}") from None
    except ValueError as failure:  # also a number of more digits than Python reads
        kind = "JSON" if is_json else "TOML"
        raise ConfigError(f"{where}: not {kind}: {failure}") from None
    except RecursionError:
        raise ConfigError(f"{where}: is nested too deeply") from None


def watched_replicas(path: str, outlet: Outlet) -> Watched:
    """A file of replicas for the reloader to look after. What it says now counts at once.

    Raises:
        ConfigError: the file cannot be used.
    """
    feed = Feed(Source.FILE, f"file {path}", outlet)
    feed.say(replicas_in(path))

    def use(offers: list[Offer]) -> str:
        feed.say(offers)
        return f"replicas={len(offers)}"

    def looked_at(is_usable: bool) -> None:  # noqa: FBT001  (the one thing it says)
        if is_usable:
            feed.heard()
        else:
            feed.failed()

    return Watched("replicas", (path,), partial(replicas_in, path), use, looked_at)

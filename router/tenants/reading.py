"""The tenants file: TOML to tenants, and one line for whatever is wrong with it."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from router.errors import ConfigError
from router.tenants.keys import parsed_hash
from router.tenants.model import NAME, NAME_WORDS, Priority, Tenant

if TYPE_CHECKING:
    from collections.abc import Iterable

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
TENANTS_MAX: Final = 10_000
_PLACE: Final = re.compile(r" - at `\$\.?(\w*)(.*)`$")
_FOREIGN: Final = re.compile(r"Object contains unknown field `(.*)`")

Limit = Annotated[int, msgspec.Meta(ge=1, le=10**12)]


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    """One ``[tenants.NAME]`` table."""

    keys: Annotated[list[str], msgspec.Meta(max_length=1_000)] = []
    models: Annotated[list[str], msgspec.Meta(max_length=1_000)] | None = None
    inflight_max: Limit | None = None
    requests_per_min_max: Limit | None = None
    prompt_tokens_per_min_max: Limit | None = None
    priority: Priority = Priority.NORMAL
    other_paths: bool = False


class _FaultyFileError(Exception):
    """What is wrong: tenant and key ("" for none), and the words."""

    def __init__(self, tenant: str, key: str, what: str) -> None:
        super().__init__(what)
        self.tenant = tenant
        self.key = key
        self.what = what


def read_tenants(data: bytes, path: str) -> list[Tenant]:
    """The tenants in a file's bytes; ``path`` is only named in errors.

    Raises:
        ConfigError: one line with the file, the line where that can be told, key and value. What
            stands among ``keys`` is not shown: somebody may have put a key there.
    """
    text = ""
    try:
        text = data.decode()
        tree = tomllib.loads(text)
        return _tenants(tree)
    except RecursionError:
        raise ConfigError(f"tenants file {path}: is nested too deeply") from None
    except ValueError as failure:  # also a number of more digits than Python reads
        raise ConfigError(f"tenants file {path}: not TOML: {failure}") from None
    except _FaultyFileError as fault:
        line = line_of(text, fault.tenant, fault.key)
        where = f"tenants file {path}" + (f", line {line}" if line else "")
        raise ConfigError(f"{where}: {fault.what}") from None


def _tenants(tree: dict[str, Any]) -> list[Tenant]:
    for key in tree:
        if key != "tenants":
            raise _FaultyFileError(
                "", key, f"{key}: is not known here; tenants are [tenants.NAME] tables"
            )
    rows = tree.get("tenants", {})
    if not isinstance(rows, dict):
        raise _FaultyFileError("", "tenants", "tenants: must be tables, [tenants.NAME] each")
    if len(rows) > TENANTS_MAX:
        raise _FaultyFileError(
            "", "", f"{len(rows)} tenants are more than the {TENANTS_MAX} allowed"
        )
    tenants = [_tenant(name, row) for name, row in rows.items()]
    _demand_distinct(tenants)
    return tenants


def _tenant(name: str, row: object) -> Tenant:
    if not NAME.fullmatch(name):
        raise _FaultyFileError(name, "", f"tenants.{name[:80]!r}: a name {NAME_WORDS}")
    if not isinstance(row, dict):
        raise _FaultyFileError("", name, f"tenants.{name}: must be a table, [tenants.{name}]")
    try:
        read = msgspec.convert(row, _Row)
    except msgspec.ValidationError as failure:
        raise _explained(name, row, str(failure)) from None
    digests = []
    for index, key in enumerate(read.keys):
        digest = parsed_hash(key)
        if digest is None:
            what = "must be a key's hash, sha256:..., as `homeport key hash` prints it"
            raise _FaultyFileError(
                name, "keys", f"tenants.{name}.keys[{index}] (not shown): {what}"
            )
        digests.append(digest)
    return Tenant(
        name,
        tuple(digests),
        None if read.models is None else tuple(read.models),
        read.inflight_max,
        read.requests_per_min_max,
        read.prompt_tokens_per_min_max,
        read.priority,
        read.other_paths,
    )


def _explained(name: str, row: dict[str, Any], failure: str) -> _FaultyFileError:
    """A refused table as one line: key, value, what is wrong."""
    if foreign := _FOREIGN.match(failure):
        known = ", ".join(_Row.__struct_fields__)
        return _FaultyFileError(
            name, foreign[1], f"tenants.{name}.{foreign[1]}: is not known; use {known}"
        )
    place = _PLACE.search(failure)
    key = place[1] if place else ""
    what = failure[: place.start()] if place else failure
    what = what[:1].lower() + what[1:]
    if key in ("keys", ""):
        return _FaultyFileError(name, key, f"tenants.{name}.{key} (not shown): {what}")
    return _FaultyFileError(name, key, f"tenants.{name}.{key} = {row.get(key)!r}: {what}")


def _demand_distinct(tenants: Iterable[Tenant]) -> None:
    owners: dict[bytes, str] = {}
    for tenant in tenants:
        for digest in tenant.digests:
            other = owners.setdefault(digest, tenant.name)
            if other != tenant.name:
                what = f"has a key that tenant {other} has too; a key names one tenant"
                raise _FaultyFileError(tenant.name, "keys", f"tenants.{tenant.name}.keys: {what}")


def line_of(text: str, tenant: str, key: str) -> int | None:
    """The line of a tenant's table, or of a key in it; None if it is written in another way."""
    header = re.compile(rf"\s*\[\s*tenants\s*\.\s*[\"']?{re.escape(tenant)}[\"']?\s*\]")
    member = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
    at_header: int | None = None
    is_inside = not tenant
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("["):
            is_inside = not tenant or header.match(line) is not None
            if tenant and is_inside:
                at_header = number
        if key and is_inside and member.match(line):
            return number
    return at_header

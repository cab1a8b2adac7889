"""What the supervisor takes from its own environment, and what of it an engine gets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from replica.errors import ReplicaError
from replica.supervise.talk.routers import RouterAccess

_KEY: Final = "HOMEPORT_ADMIN_KEY"
_KEY_FILE: Final = "HOMEPORT_ADMIN_KEY_FILE"
_CA_FILE: Final = "HOMEPORT_ADMIN_CA_FILE"
_SECRETS: Final = frozenset({_KEY, _KEY_FILE})
_KEY_BYTES_MAX: Final = 4096


def engine_environment() -> dict[str, str]:
    """This process's variables, without the keys to routers."""
    return {name: value for name, value in os.environ.items() if name not in _SECRETS}


def router_accesses(
    urls: tuple[str, ...], *, key_file: Path | None, ca_file: Path | None
) -> tuple[RouterAccess, ...]:
    """The routers' control ports; key and CA from the flags, else from the environment.

    Raises:
        ReplicaError: ``bad-value``: a URL is none, or a file cannot be used.
    """
    key = _key(key_file)
    authority = str(ca_file) if ca_file is not None else os.environ.get(_CA_FILE) or None
    accesses = tuple(RouterAccess(url, key, authority) for url in dict.fromkeys(map(_url, urls)))
    for access in accesses:
        try:
            access.tls()
        except OSError as failure:
            raise ReplicaError(
                "bad-value", f"--router-ca-file: {authority} cannot be used: {failure}"
            ) from None
    return accesses


def _url(given: str) -> str:
    url = given.strip().rstrip("/")
    parts = urlsplit(url)
    try:
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        is_right = False
    if not is_right or parts.path or parts.query or parts.username:
        raise ReplicaError(
            "bad-value",
            f"--router {url.rpartition('@')[2]}: give its control port as http://HOST:PORT or https://HOST:PORT"
            " (`homeport serve` prints it as admin_url)",
        )
    return url


def _key(flag: Path | None) -> str | None:
    named = os.environ.get(_KEY_FILE)
    path = flag or (Path(named) if named else None)
    key = os.environ.get(_KEY) if path is None else _read(path)
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise ReplicaError("bad-value", "a router's key must be visible ASCII without blanks")
    return key or None


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_KEY_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as failure:
        raise ReplicaError(
            "bad-value", f"the router's key cannot be read from {path}: {failure}"
        ) from None

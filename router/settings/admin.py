"""How a command reaches a router's control API: from flags and the environment, its key never from a flag."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

from router.errors import ConfigError
from router.settings.security import read_secret
from router.state.fleet.addresses import parse_url

_URL: Final = "HOMEPORT_ADMIN_URL"
_CA_FILE: Final = "HOMEPORT_ADMIN_CA_FILE"
_KEY: Final = "HOMEPORT_ADMIN_KEY"
_KEY_FILE: Final = "HOMEPORT_ADMIN_KEY_FILE"
_DEFAULT_URL: Final = "http://127.0.0.1:30080"

WORKER: Final = "HOMEPORT_WORKER"
"""Set for the workers of one router by their parent, and for nobody else."""

OTHERS: Final = frozenset((_URL, _CA_FILE, WORKER))
"""Variables that are no settings of ``homeport serve``, which may stand in the same environment."""


@dataclass(slots=True, frozen=True)
class AdminAccess:
    """Where the control API is, and what it asks for."""

    url: str
    key: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    cert_key_file: str | None = None


def admin_access(
    *,
    url: str | None = None,
    key_file: str | None = None,
    ca_file: str | None = None,
    cert_file: str | None = None,
    cert_key_file: str | None = None,
) -> AdminAccess:
    """What the flags say, else the environment; without either the router on this machine.

    Raises:
        ConfigError: a value is impossible, or a file of a secret cannot be read.
    """
    source = "--url" if url is not None else _URL
    url = (url or os.environ.get(_URL) or _DEFAULT_URL).strip().rstrip("/")
    if parse_url(url) is None:
        shown = url if "@" not in url else f"...@{url.rpartition('@')[2]}"
        raise ConfigError(
            f"{source}: {shown!r} is not of the form http://HOST:PORT or https://HOST:PORT (the control port's,"
            " which `homeport serve` prints as admin_url)"
        )
    if (cert_file is None) != (cert_key_file is None):
        raise ConfigError("--cert-file and --cert-key-file belong together: give both or none")
    return AdminAccess(
        url, _key(key_file), ca_file or os.environ.get(_CA_FILE) or None, cert_file, cert_key_file
    )


def secret_in(flag: str, path: str) -> str:
    """A secret that a flag names the file of.

    Raises:
        ConfigError: there is none in it.
    """
    return read_secret(flag, path, "flag").get_secret_value()


def _key(key_file: str | None) -> str | None:
    if key_file is not None:
        return secret_in("--key-file", key_file)
    key, path = os.environ.get(_KEY), os.environ.get(_KEY_FILE)
    if key and path:
        raise ConfigError(f"{_KEY} and {_KEY_FILE} are both set: choose one")
    if path:
        return read_secret(_KEY_FILE, path, "environment").get_secret_value()
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigError(f"{_KEY}: must be visible ASCII without blanks: it is sent in a header")
    return key or None

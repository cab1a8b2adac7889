"""Where a replica listens, as it is written."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

_HOST: Final = re.compile(r"[A-Za-z0-9._:%-]{1,253}")


class Address(NamedTuple):
    """Where a replica is; ``is_tls`` where its URL begins with ``https``."""

    host: str
    port: int
    is_tls: bool


def parse_url(url: str) -> Address | None:
    """The address in ``http://HOST:PORT`` or ``https://HOST:PORT``; None for any other form."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not host or not port or parts.path.strip("/"):
        return None
    if not _HOST.fullmatch(host):
        return None
    if parts.query or parts.fragment or parts.username is not None:
        return None
    return Address(host, port, parts.scheme == "https")

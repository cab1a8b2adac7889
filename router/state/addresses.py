"""Where a replica listens, as it is written."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

_HOST: Final = re.compile(r"[A-Za-z0-9._:%-]{1,253}")


def parse_url(url: str) -> tuple[str, int] | None:
    """Host and port of ``http://HOST:PORT``; None if the URL has another form."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme != "http" or not host or not port or parts.path.strip("/"):
        return None
    if not _HOST.fullmatch(host):
        return None
    return None if parts.query or parts.fragment or parts.username else (host, port)

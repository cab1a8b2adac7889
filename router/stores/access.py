"""How Redis is reached: a URL's parts, who asks, and how it is encrypted."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

_PORT: Final = 6_379
_SENTINEL_PORT: Final = 26_379


class Kind(Enum):
    """What stands behind a URL."""

    SERVER = auto()
    SENTINEL = auto()
    CLUSTER = auto()


@dataclass(slots=True, frozen=True)
class RedisAccess:
    """Where Redis is; ``places`` are servers, sentinels or nodes by ``kind``. ``command_s`` bounds every call."""

    kind: Kind
    places: tuple[tuple[str, int], ...]
    prefix: str = "homeport"
    command_s: float = 1.0
    db: int = 0
    master: str = ""
    unix_path: str = ""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    is_tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    is_verified: bool = True

    @property
    def tls_options(self) -> dict[str, Any]:
        """TLS as the client library wants it; nothing without."""
        if not self.is_tls:
            return {}
        return {
            "ssl": True,
            "ssl_ca_certs": self.ca_file,
            "ssl_certfile": self.cert_file,
            "ssl_keyfile": self.key_file,
            "ssl_cert_reqs": "required" if self.is_verified else "none",
            "ssl_check_hostname": self.is_verified,
        }


def access_of(url: str, **more: Any) -> RedisAccess:  # noqa: ANN401  (the fields of RedisAccess)
    """What a URL says; the settings have checked its form."""
    scheme, _, rest = url.partition("://")
    if scheme == "unix":
        return RedisAccess(Kind.SERVER, (), unix_path=rest, **more)
    places, _, path = rest.partition("/")
    kind = {"sentinel": Kind.SENTINEL, "cluster": Kind.CLUSTER}.get(
        scheme.partition("+")[2], Kind.SERVER
    )
    port = _SENTINEL_PORT if kind is Kind.SENTINEL else _PORT
    found = tuple(_place(place, port) for place in places.split(","))
    is_tls = scheme.startswith("rediss")
    if kind is Kind.SENTINEL:
        return RedisAccess(kind, found, master=path, is_tls=is_tls, **more)
    return RedisAccess(kind, found, db=int(path) if path.isdigit() else 0, is_tls=is_tls, **more)


def _place(text: str, port: int) -> tuple[str, int]:
    host, colon, number = text.rpartition(":")
    if not colon or text.endswith("]"):
        return text.strip("[]"), port
    return host.strip("[]"), int(number)

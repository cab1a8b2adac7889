"""Settings of TLS, and how secrets are read from files; ``docs/security.md`` describes them."""

from __future__ import annotations

import ipaddress
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Final, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from router.errors import ConfigError
from router.settings.kinds import Path, Seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET_FILES: Final = {
    "admin_key_file": "admin_key",
    "redis_password_file": "redis_password",
    "replica_api_key_file": "replica_api_key",
}
"""A setting that names a file -> the secret that is read from it."""

_SECRET_BYTES_MAX: Final = 4096


class TlsSettings(BaseModel):
    """TLS towards clients; on as soon as ``cert_file`` is set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cert_file: Path = Field(
        default=None, description="certificate chain, PEM; the data port then speaks TLS"
    )
    key_file: Path = Field(default=None, description="the certificate's private key, PEM")
    client_ca_file: Path = Field(
        default=None, description="CAs whose client certificates are demanded, PEM"
    )
    # A handshake takes two round trips; a client that is slower by far only holds a socket.
    handshake_s: Seconds = Field(default=10.0, description="for a client's TLS handshake")
    control: bool = Field(
        default=False, description="the control port speaks TLS too, with the same files"
    )

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together: set both or none")
        if self.cert_file is None and (self.client_ca_file is not None or self.control):
            raise ValueError("client_ca_file and control need cert_file and key_file")
        return self


class ReplicaTlsSettings(BaseModel):
    """TLS towards replicas whose URL begins with ``https``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ca_file: Path = Field(
        default=None, description="CAs that replicas' certificates come from; the system's if unset"
    )
    cert_file: Path = Field(default=None, description="the router's own certificate, PEM")
    key_file: Path = Field(default=None, description="its private key, PEM")
    verify: bool = Field(
        default=True, description="verify replicas' certificates and names; never off in production"
    )

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together: set both or none")
        return self


def read_secret(key: str, path: str, source: str) -> SecretStr:
    """The secret in a file, without the line's end.

    Raises:
        ConfigError: there is none, or it cannot be one; the text never shows it.
    """
    where = f"{key} = {path!r} (from {source})"
    try:
        with FilePath(path).open("rb") as opened:
            data = opened.read(_SECRET_BYTES_MAX + 1)
        text = data.decode().strip()
    except OSError as failure:
        raise ConfigError(f"{where}: {failure.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: the file is not text") from None
    if not text or len(data) > _SECRET_BYTES_MAX or len(text.split()) > 1:
        raise ConfigError(f"{where}: the file must hold one word, the secret, and nothing else")
    return SecretStr(text)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def demand_admin_key(host: str, key: SecretStr | None, sources: Mapping[str, str]) -> None:
    """Refuse a control port that others can reach without a key.

    Raises:
        ConfigError: so it is; the text says what to do.
    """
    if key is None and not is_loopback(host):
        raise ConfigError(
            f"admin_host = {host!r} (from {sources.get('admin_host', 'default')}): the control API"
            " drains and removes replicas, so beyond loopback it needs a key: set admin_key_file or"
            " admin_key (`homeport key new` makes one), or listen on 127.0.0.1"
        )

"""TLS contexts: for the ports that listen, and for connections to replicas."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final

from router.errors import ConfigError

_ALPN: Final = ["http/1.1"]


@dataclass(slots=True, frozen=True)
class TlsFiles:
    """Paths of PEM files: a certificate chain and its key, and whose certificates are believed."""

    cert: str | None = None
    key: str | None = None
    ca: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """Those that there are."""
        return tuple(path for path in (self.cert, self.key, self.ca) if path is not None)


class ServerTls:
    """The TLS of a listening port, whose certificate can be changed while it listens.

    ``context`` is what the server is given, once. Each handshake is then led to the newest
    context; connections that are open keep what they began with.
    """

    def __init__(self, files: TlsFiles) -> None:
        """Read the files.

        Raises:
            ConfigError: one of them cannot be used; the text names it.
        """
        self._files = files
        self._newest = self.context = _server_context(files)
        # Called in each handshake, also where the client names no server.
        self.context.sni_callback = self._lead

    @property
    def paths(self) -> tuple[str, ...]:
        """The files."""
        return self._files.paths

    def read(self) -> ssl.SSLContext:
        """Read the files again.

        Raises:
            ConfigError: one of them cannot be used.
        """
        return _server_context(self._files)

    def use(self, newest: ssl.SSLContext) -> None:
        """The handshakes to come use what was read."""
        self._newest = newest

    def _lead(self, handshake: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        handshake.context = self._newest


def client_context(files: TlsFiles | None = None, *, verify: bool = True) -> ssl.SSLContext:
    """The TLS of connections to replicas: their certificates and names are verified.

    ``files.ca`` None believes the system's CAs; ``verify`` False believes everybody.

    Raises:
        ConfigError: a file cannot be used; the text names it.
    """
    files = files or TlsFiles()
    try:
        context = ssl.create_default_context(cafile=files.ca)
        if files.cert is not None:
            context.load_cert_chain(files.cert, files.key, password=_no_password)
    except (OSError, ValueError) as failure:
        raise _unusable(files, failure) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(_ALPN)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _server_context(files: TlsFiles) -> ssl.SSLContext:
    assert files.cert is not None, "a server has a certificate"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(_ALPN)
    try:
        context.load_cert_chain(files.cert, files.key, password=_no_password)
        if files.ca is not None:
            context.load_verify_locations(files.ca)
            context.verify_mode = ssl.CERT_REQUIRED
            # A resumed session would not be asked for its certificate again.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
    except (OSError, ValueError) as failure:
        raise _unusable(files, failure) from None
    return context


def _no_password() -> str:
    """Without this OpenSSL would ask the terminal, and wait."""
    raise ValueError(
        "the private key is encrypted; store it without a password, readable by us only"
    )


def _unusable(files: TlsFiles, failure: Exception) -> ConfigError:
    """Why the files cannot be used, and which of them."""
    for path in files.paths:
        try:
            with open(path, "rb"):  # noqa: PTH123  (only whether it can be read)
                continue
        except OSError as unreadable:
            return ConfigError(f"TLS file {path}: {unreadable.strerror}")
    what = getattr(failure, "reason", None) or failure
    return ConfigError(f"TLS files {', '.join(files.paths)}: cannot be used: {what}")

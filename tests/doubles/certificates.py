"""Certificates made by the ``openssl`` command: a CA, and what it signs; nothing is shipped.

``Authority(folder)`` is a CA; ``issue("server")`` writes ``server.pem`` and ``server.key`` for
127.0.0.1 and localhost.
"""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_NAMES = "subjectAltName=IP:127.0.0.1,DNS:localhost"


def _openssl(*arguments: str) -> None:
    command = shutil.which("openssl")
    if command is None:
        pytest.skip("needs the openssl command")
    run = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, both paths."""

    cert: str
    key: str


class Authority:
    """A CA in a folder of its own."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self.cert = str(folder / f"{name}.pem")
        self._key = str(folder / f"{name}.key")
        subject = ("-subj", f"/CN={name}", "-days", "2")
        _openssl("req", "-x509", *_EC, "-keyout", self._key, "-out", self.cert, *subject)

    def issue(self, name: str, *, names: str = _NAMES) -> Pair:
        """A certificate signed by this CA, named so."""
        pair = Pair(str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key"))
        signed = ("-CA", self.cert, "-CAkey", self._key, "-days", "2", "-addext", names)
        end = ("-addext", "basicConstraints=critical,CA:FALSE")
        subject = ("-subj", f"/CN={name}")
        _openssl(
            "req", "-x509", *_EC, "-keyout", pair.key, "-out", pair.cert, *subject, *signed, *end
        )
        return pair

    def believer(self, own: Pair | None = None) -> ssl.SSLContext:
        """A client's context that believes this CA, with a certificate of its own if given."""
        context = ssl.create_default_context(cafile=self.cert)
        if own is not None:
            context.load_cert_chain(own.cert, own.key)
        return context


def name_of(transport_context: ssl.SSLObject) -> str:
    """The common name in the certificate that the other side showed."""
    shown = transport_context.getpeercert() or {}
    return next(value for ((key, value),) in shown["subject"] if key == "commonName")  # type: ignore[misc,union-attr]

"""What guards the router, from its settings: tenants, certificates, and the files they stand in."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from router.clock import now_s
from router.control.discovery.access import demand_extra
from router.control.discovery.file import replicas_in
from router.control.reload import Watched, tenants_in
from router.edge.entry.credentials import EdgeSecurity, ReplicaKeys
from router.edge.entry.tls import ServerTls, TlsFiles, client_context
from router.tenants.gate import Gate

if TYPE_CHECKING:
    import ssl

    from router.settings import Settings
    from router.tenants.model import Tenant

_log: Final = logging.getLogger("homeport.serve")


def tenants_gate(settings: Settings) -> Gate | None:
    """Who may come in, as the tenants file has it; None if there is no such file.

    Raises:
        ConfigError: the file cannot be used.
    """
    if settings.tenants_file is None:
        return None
    is_isolated = settings.tenant_prefixes == "isolated"
    return Gate(tenants_in(settings.tenants_file), now_s(), is_isolated=is_isolated)


def server_tls(settings: Settings) -> ServerTls | None:
    """The listening ports' TLS; None if they speak plain HTTP.

    Raises:
        ConfigError: a file cannot be used.
    """
    tls = settings.tls
    if tls.cert_file is None:
        return None
    return ServerTls(TlsFiles(tls.cert_file, tls.key_file, tls.client_ca_file))


def edge_security(
    settings: Settings, gate: Gate | None, tls: ServerTls | None, to_replicas: ssl.SSLContext
) -> EdgeSecurity:
    """What the front door asks of clients, and shows to replicas."""
    secret = settings.replica_api_key
    key = None if secret is None else secret.get_secret_value()
    return EdgeSecurity(
        gate=gate,
        keys=ReplicaKeys(key, is_client_forwarded=settings.forward_client_key),
        tls=tls,
        handshake_s=settings.tls.handshake_s,
        replica_tls=to_replicas,
    )


def replica_tls(settings: Settings) -> ssl.SSLContext:
    """The TLS towards replicas.

    Raises:
        ConfigError: a file cannot be used.
    """
    tls = settings.replica_tls
    if not tls.verify:
        _log.warning("replica-tls-unverified (anybody in between can read prompts and answer)")
    return client_context(TlsFiles(tls.cert_file, tls.key_file, tls.ca_file), verify=tls.verify)


def check_files(settings: Settings) -> None:
    """Read what the settings name, as a start would.

    Raises:
        ConfigError: one of the files cannot be used.
    """
    tenants_gate(settings)
    server_tls(settings)
    replica_tls(settings)
    if settings.discovery.file is not None:
        replicas_in(settings.discovery.file)
    if settings.discovery.kubernetes_services:
        demand_extra()


def watched_files(settings: Settings, gate: Gate | None, tls: ServerTls | None) -> list[Watched]:
    """What is read again when it changes."""
    groups: list[Watched] = []
    path = settings.tenants_file
    if gate is not None and path is not None:

        def use_tenants(tenants: list[Tenant]) -> str:
            gate.replace(tenants, now_s())
            return f"tenants={len(tenants)} keys={sum(len(t.digests) for t in tenants)}"

        groups.append(Watched("tenants", (path,), partial(tenants_in, path), use_tenants))
    if tls is not None:

        def use_certificate(newest: ssl.SSLContext) -> str:
            tls.use(newest)
            return f"certificate={settings.tls.cert_file}"

        groups.append(Watched("tls", tls.paths, tls.read, use_certificate))
    return groups

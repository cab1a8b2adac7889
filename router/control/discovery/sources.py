"""All sources that the settings ask for, started and ended together."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from router.control.discovery.dns import DnsSource
from router.control.discovery.file import watched_replicas
from router.control.discovery.kubernetes import KubernetesSource

if TYPE_CHECKING:
    from router.control.discovery.feed import Outlet
    from router.control.reload import Watched
    from router.settings import DiscoverySettings

_log = logging.getLogger("homeport.discovery")
_FIRST_S: Final = 5.0
"""For the sources' first word; the router then starts with what it knows."""


class Discovery:
    """The sources of one router. ``watched`` are the files among them, for the reloader."""

    def __init__(self, settings: DiscoverySettings, outlet: Outlet) -> None:
        """Prepare, and read the file.

        Raises:
            ConfigError: the file cannot be used, or a source lacks what it needs.
        """
        self.watched: list[Watched] = []
        self._sources: list[DnsSource | KubernetesSource] = []
        if settings.file is not None:
            self.watched.append(watched_replicas(settings.file, outlet))
        if settings.dns:
            self._sources.append(
                DnsSource(
                    settings.dns,
                    outlet,
                    nameserver=settings.nameserver,
                    scheme=settings.scheme,
                )
            )
        if settings.kubernetes_services:
            self._sources.append(
                KubernetesSource(
                    settings.kubernetes_services,
                    outlet,
                    namespace=settings.kubernetes_namespace,
                    port=settings.kubernetes_port,
                    kubeconfig=settings.kubeconfig,
                    scheme=settings.scheme,
                )
            )

    async def start(self) -> None:
        """Begin, and wait a little for the first word of each source."""
        for source in self._sources:
            source.start()
        try:
            async with asyncio.timeout(_FIRST_S):
                for source in self._sources:
                    await source.answered()
        except TimeoutError:
            _log.warning("sources-silent waited_s=%s (starting without them)", _FIRST_S)

    async def stop(self) -> None:
        """End all of them."""
        for source in self._sources:
            await source.stop()

"""The router's settings: one frozen tree, the only reader of environment and settings files.

``tree`` holds the tree and resolves its sources; groups of settings have a file each.
"""

from router.settings.discovery import DiscoverySettings
from router.settings.groups import LimitSettings
from router.settings.security import ReplicaTlsSettings, TlsSettings
from router.settings.tree import PREFIX, Resolved, Settings, load

__all__ = [
    "PREFIX",
    "DiscoverySettings",
    "LimitSettings",
    "ReplicaTlsSettings",
    "Resolved",
    "Settings",
    "TlsSettings",
    "load",
]

"""The process's limit of open files: each client's connection may need two."""

from __future__ import annotations

import resource


def raise_open_files() -> int:
    """Raise the soft limit of open files to the hard one; answers the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # some systems cap it below what they name
            return soft
    return hard

"""One control API for all workers of a router; ``docs/workers.md``."""

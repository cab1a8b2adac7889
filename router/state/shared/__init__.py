"""What routers tell each other: sessions' homes and what each has in flight. No I/O; ``docs/routers.md``."""

"""What this router shares with others, over a store; ``docs/routers.md``."""

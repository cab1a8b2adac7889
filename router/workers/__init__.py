"""Several processes of one router: the parent that supervises them, and what they share; ``docs/workers.md``."""

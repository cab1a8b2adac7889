"""What recorded traffic is like, in numbers: sizes, pauses, and what caches would hold; pure."""

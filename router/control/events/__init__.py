"""KV events: what engines publish of their caches, followed without a gap and told to the core."""

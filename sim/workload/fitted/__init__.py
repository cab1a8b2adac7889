"""Traffic drawn from published statistics: sessions of coding agents that need no file."""

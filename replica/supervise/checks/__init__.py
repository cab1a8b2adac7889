"""What keeps an engine from starting, before and after it was tried."""

"""One engine's processes: their guardian, their output, their end."""

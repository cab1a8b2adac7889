"""What following an answer has in common: events and taps."""

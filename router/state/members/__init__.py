"""What members are told, and the conclusions: joins and leaves, health, load reports, cache reports."""

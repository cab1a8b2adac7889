"""What is bounded, by how much, and what waits or is tried again within it."""

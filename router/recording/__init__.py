"""What the core was told and what it answered, as a file, and a core that is told it again."""

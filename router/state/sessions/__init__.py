"""What is remembered of sessions: their pins, and the prompts by which one is known again."""

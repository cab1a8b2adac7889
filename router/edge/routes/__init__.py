"""What a path and method lead to."""

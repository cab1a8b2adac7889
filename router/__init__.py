"""The front door: decides where a request goes, and carries it there and back."""

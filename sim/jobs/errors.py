"""What can go wrong with a run that was asked for properly."""

from __future__ import annotations


class RunError(Exception):
    """A run came to no end; the message says which one and why.

    ``repeat`` is the command that runs it again. ``is_input``: what the run was given was wrong, not the run.
    """

    def __init__(self, words: str, *, repeat: str = "", is_input: bool = False) -> None:
        super().__init__(words)
        self.repeat = repeat
        self.is_input = is_input

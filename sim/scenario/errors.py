"""What can be wrong with a scenario."""

from __future__ import annotations


class ScenarioError(ValueError):
    """A scenario cannot be used; the message names the file or flag, the key, the value and what is allowed."""

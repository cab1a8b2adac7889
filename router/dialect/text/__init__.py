"""Prompts without messages (``/v1/completions``, ``/generate``), and calls that generate nothing."""

"""Measurements: what the router costs (``python -m bench``), and replays of recorded sessions.

Not part of the distribution. Everything here speaks to the router as its neighbours do, over HTTP,
but for ``facts``, which drives the pure core.
"""

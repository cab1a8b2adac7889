"""One HTML page of a simulation's results, complete in itself: no network, no other file."""

from __future__ import annotations

from sim.page.page import render

__all__ = ["render"]

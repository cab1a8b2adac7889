"""Measuring a run: what is noted while it goes on, and the figures made of that."""

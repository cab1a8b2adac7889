"""Recorded traffic: one form in memory and a reader for each published format; pure."""

"""Workloads: a synthetic agent load and readers of recorded traces; pure, no clock, no socket."""

"""Asking the replicas how they are."""

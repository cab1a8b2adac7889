"""Connections to replicas, and their answers as they come in."""

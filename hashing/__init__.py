"""Bytes in, numbers out: canonical parts, segments, chains and rendezvous ranks."""

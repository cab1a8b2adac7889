"""Engines that a replica can run: how each is launched, asked and stopped."""

"""Tenants: who may use the front door, and how much. No I/O, no clock."""

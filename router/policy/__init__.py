"""Policies: functions over a view of the fleet, without state or I/O of their own."""

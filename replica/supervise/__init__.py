"""Engines as supervised processes: started, watched, registered, drained, and never left behind."""

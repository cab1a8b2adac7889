"""The simulator at work: wall clock, processes, files of results. Everything else of it is pure."""

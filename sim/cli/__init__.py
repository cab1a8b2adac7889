"""Command lines of the package, one family a file: the simulator, the emulator, the demo, traces."""

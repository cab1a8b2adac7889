"""Live twins over real HTTP: the emulated replica and what drives load at it."""

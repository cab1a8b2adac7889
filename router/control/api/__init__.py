"""The control API: its server, its answers, who may use it."""

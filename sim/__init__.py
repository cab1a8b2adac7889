"""The engine model, the workloads, and what drives them in virtual or in real time."""

"""The sub-commands of ``homeport replica``, one a module; none is imported by another."""

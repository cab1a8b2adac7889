"""Sub-commands of ``homeport`` that have a file or several of their own, and how they run."""

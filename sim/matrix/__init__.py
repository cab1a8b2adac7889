"""The matrix of what is claimed of a policy: which runs it takes, by which rules they are judged, how it is told."""

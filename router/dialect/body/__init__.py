"""What reading and changing JSON bodies has in common."""

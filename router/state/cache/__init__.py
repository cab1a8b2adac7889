"""What replicas are believed to have cached, and what that means for a prompt."""

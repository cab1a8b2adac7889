"""How a replica fares, and what that means for who is sent there."""

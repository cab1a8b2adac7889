"""What is learned of speeds and sizes from what engines report."""

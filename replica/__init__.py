"""What runs behind the front door: engines, their hardware and their launch."""

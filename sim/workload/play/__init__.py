"""Traffic as the simulator plays it: turns that fall due, and what follows when they have ended."""

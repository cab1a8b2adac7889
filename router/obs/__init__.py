"""What the router tells about itself: metrics and logs."""

"""One exchange from its whole body to its last byte, on whichever replicas it is tried."""

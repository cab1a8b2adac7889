"""What the router believes: state machines and tables that are told the time."""

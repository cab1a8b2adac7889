"""What a simulated run is: its traffic, fleet, routers and faults, read from TOML."""

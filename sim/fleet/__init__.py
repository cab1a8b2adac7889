"""A fleet in virtual time: engines, routers, clients and faults around the router's own core."""

"""The data plane: clients and replicas over sockets, driven by the core's decisions."""

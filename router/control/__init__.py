"""The control plane: probes of the replicas, and the API that operators and replicas use."""

"""The replicas: who they are, what they carry, who may take a request."""

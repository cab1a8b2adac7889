"""Connections of clients: requests in, answers out."""

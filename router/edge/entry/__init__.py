"""Who may come in: keys, tenants, TLS."""

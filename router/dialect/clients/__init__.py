"""Who is asking: sessions, agents and their manners, tenants kept apart."""

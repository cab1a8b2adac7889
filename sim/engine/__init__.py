"""Model of one replica's engine: prefix cache, scheduler and step times, without clock or I/O."""

"""What is said over HTTP: to the engine, and to the routers."""

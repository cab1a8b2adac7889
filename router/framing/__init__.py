"""HTTP/1.1 framing without I/O: bytes to events and back, on llhttp."""

"""What is written and read on the wire, whoever asked."""

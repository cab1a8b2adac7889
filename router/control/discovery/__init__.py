"""Sources that name replicas and are read again and again: a file, DNS, Kubernetes."""

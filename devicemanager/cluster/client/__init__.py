"""Between the nodes of one process and the API server: requests, watches, leases, events."""

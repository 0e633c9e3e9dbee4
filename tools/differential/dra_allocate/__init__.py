"""Compare the allocator of ``resource.k8s.io`` with the real one in random problems."""

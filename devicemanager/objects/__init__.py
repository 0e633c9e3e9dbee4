"""Kubernetes objects in and out: manifests become pods, facts become statuses."""

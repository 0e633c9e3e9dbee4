"""Statuses and objects of the Kubernetes API as plain JSON values, written and read back."""

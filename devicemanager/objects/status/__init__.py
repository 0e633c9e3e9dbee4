"""Convert statuses and objects of the Kubernetes API to JSON values, and read them back."""

"""The API ``devmgmtproto.k8s.io/v1alpha1``: its objects, their rules, and their meaning."""

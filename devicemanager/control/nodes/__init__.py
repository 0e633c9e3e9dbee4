"""The control API for nodes in a cluster, which ``devicemanager join --control`` serves.

The package has another table of operations for the same router, client and OpenAPI document as the
control API of a kubelet. It uses the nodes through the protocols in ``protocol``, so it does not
depend on the package ``cluster``.
"""

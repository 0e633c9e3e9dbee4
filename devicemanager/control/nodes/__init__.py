"""The control API of nodes in a cluster, for ``devicemanager join --control``.

Another table of operations for the same router, client and OpenAPI document. It sees the nodes
through the protocols in ``protocol``, so it does not depend on the cluster.
"""

"""The control API for nodes in a cluster, which ``devicemanager join --control`` serves.

The package has a table of operations for these nodes. It shares the router, the client and the
generator of OpenAPI documents with the control API of a kubelet. It uses the nodes through Python
protocols (module ``protocol``), so it does not depend on the package ``cluster``.
"""

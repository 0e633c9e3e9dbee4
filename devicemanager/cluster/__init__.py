"""Virtual nodes in a real Kubernetes cluster.

The cluster's scheduler binds pods to nodes that nobody racked; each of these has a device
manager of its own, which admits or refuses as a kubelet would. What belongs here: talking to
the API server. What never does: decisions about devices.
"""

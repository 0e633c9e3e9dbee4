"""DRA on the virtual nodes of a cluster: ResourceSlices, ResourceClaims and their statuses.

In:  the layouts of a node's simulated drivers (``cluster.driver_layouts``), changes of their
     devices, events of the kubelet, ResourceClaims of the API server.
Out: ResourceSlices of the node, claims for the kubelet, ``status.devices`` of claims.

* ``node``: connects the parts of one node. Start reading there.
* ``slices``: publishes and deletes the slices of one node.
* ``claims``: gets claims for the kubelet, and writes the status of their devices.

The package decides nothing about claims: ``devicemanager.kubelet.inmemory.dra`` prepares them.
"""

"""The driver's side of Dynamic Resource Allocation: sockets of a DRA driver, and a simulated one.

Theory of operation. A DRA driver creates a registration socket in the kubelet's directory
``plugins_registry`` and a service socket in ``plugins/<driver>``. The kubelet finds the first one,
calls GetInfo, and then calls the second one: NodePrepareResources before a pod starts, and
NodeUnprepareResources after it has ended.

* ``sockets``: both sockets of one driver instance, for any implementation of the services.
* ``simulated``: a driver with virtual devices, CDI files, health and faults.

The package does not depend on the mock kubelet.
"""

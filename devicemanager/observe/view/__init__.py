"""Views: immutable values that describe a node, and the builders of these values.

Theory of operation. A builder is called repeatedly (``refresh``) and returns the current view.
``delta`` compares two views that the same builder has returned.

In:  the sources that the builders read:
     ``KubeletView``         a ``MockKubelet``: its devices, pods, claims, events and calls;
     ``PodResourcesView``    List and GetAllocatableResources responses of any kubelet;
     ``ClusterViewBuilder``  the nodes of a cluster in this process.
Out: a ``NodeView`` or a ``ClusterView`` (``values``, ``cluster``).

Invariants:
* Views never change. A resource, plugin or pod that has not changed since the previous view is
  the same object (``reuse``). If nothing has changed, the whole view is the same object.
* Devices are not stored as objects, because a node can have 10,000 devices. Each of their
  properties is a tuple (a column), and the number of a device is its index in these tuples.
* A kubelet's lock is held only for short steps, so admissions are not delayed.
* The package does not draw, open sockets or change the kubelet.

Start reading at ``values``. ``kubelet`` shows how the parts are combined, and ``devices`` is the
only part with an incremental algorithm.
"""

from __future__ import annotations

from devicemanager.kubelet.pods.pod_info import ContainerInfo, ContainerKind, PodInfo
from devicemanager.observe.view.changes import Delta, DevicesDelta, delta
from devicemanager.observe.view.cluster import (
    ClusterNodeView,
    ClusterView,
    ClusterViewBuilder,
    ResourceTotals,
)
from devicemanager.observe.view.kubelet import KubeletView
from devicemanager.observe.view.podresources import PodResourcesView
from devicemanager.observe.view.values import (
    DeviceState,
    DeviceView,
    Holder,
    LastCall,
    Layout,
    NodeView,
    Pending,
    PluginView,
    ResourceView,
    Stream,
)

__all__ = [
    "ClusterNodeView",
    "ClusterView",
    "ClusterViewBuilder",
    "ContainerInfo",
    "ContainerKind",
    "Delta",
    "DeviceState",
    "DeviceView",
    "DevicesDelta",
    "Holder",
    "KubeletView",
    "LastCall",
    "Layout",
    "NodeView",
    "Pending",
    "PluginView",
    "PodInfo",
    "PodResourcesView",
    "ResourceTotals",
    "ResourceView",
    "Stream",
    "delta",
]

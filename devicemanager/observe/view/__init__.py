"""Views: immutable values that describe a node, and the builders that make them.

Theory of operation. A builder is called repeatedly (``refresh``) and returns the view of that
moment. ``delta`` compares two views of one builder.

In:  ``KubeletView``         a ``MockKubelet``: one snapshot, its pods, events and calls;
     ``PodResourcesView``    List and GetAllocatableResources responses of any kubelet;
     ``ClusterViewBuilder``  the nodes of a cluster in this process.
Out: a ``NodeView`` or a ``ClusterView`` (``values``, ``cluster``).

Invariants:
* Views never change. A part that has not changed since the view before is the same object
  (``reuse``), down to a resource, plugin or pod. If nothing changed, so is the whole view.
* Devices are columns by number, not objects: a node can have 10,000 of them.
* A kubelet's lock is held for one step at a time, so admissions are not delayed.
* No drawing, no sockets, no changes to the kubelet.

Start reading at ``values``; ``kubelet`` shows how the parts are put together, and ``devices``
is the only part with an incremental algorithm.
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

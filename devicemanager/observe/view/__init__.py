"""The node as a picture: pure values, and who makes them.

What belongs here: the values that a page or a terminal shows (``values``), builders of them
from a ``MockKubelet`` (``KubeletView``), from what any kubelet's PodResources service
answers (``PodResourcesView``) and from many nodes in a cluster (``ClusterPictures``), and what two
pictures differ in (``delta``). What never does:
drawing, sockets, steering the kubelet.
"""

from __future__ import annotations

from devicemanager.kubelet.pods.pod_info import ContainerInfo, ContainerKind, PodInfo
from devicemanager.observe.view.changes import Delta, DevicesDelta, delta
from devicemanager.observe.view.cluster import (
    ClusterNodeView,
    ClusterPictures,
    ClusterView,
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
    "ClusterPictures",
    "ClusterView",
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

"""Preparation of resource claims on a node, v1beta1: the API of a DRA driver.

The driver serves this on the socket that it names in its registration. The kubelet calls it
before a pod's sandbox is created, and after the pod's containers have ended.
"""

# Generated from dra_v1beta1.proto by tools/generate_protos.py: edit that file instead.

from protos._pool import file, message

__all__ = [
    "DESCRIPTOR",
    "Claim",
    "Device",
    "NodePrepareResourceResponse",
    "NodePrepareResourcesRequest",
    "NodePrepareResourcesResponse",
    "NodeUnprepareResourceResponse",
    "NodeUnprepareResourcesRequest",
    "NodeUnprepareResourcesResponse",
]

DESCRIPTOR = file("dra_v1beta1.proto")

Claim = message("k8s.io.kubelet.pkg.apis.dra.v1beta1.Claim")
Device = message("k8s.io.kubelet.pkg.apis.dra.v1beta1.Device")
NodePrepareResourceResponse = message("k8s.io.kubelet.pkg.apis.dra.v1beta1.NodePrepareResourceResponse")
NodePrepareResourcesRequest = message("k8s.io.kubelet.pkg.apis.dra.v1beta1.NodePrepareResourcesRequest")
NodePrepareResourcesResponse = message("k8s.io.kubelet.pkg.apis.dra.v1beta1.NodePrepareResourcesResponse")
NodeUnprepareResourceResponse = message("k8s.io.kubelet.pkg.apis.dra.v1beta1.NodeUnprepareResourceResponse")
NodeUnprepareResourcesRequest = message("k8s.io.kubelet.pkg.apis.dra.v1beta1.NodeUnprepareResourcesRequest")
NodeUnprepareResourcesResponse = message("k8s.io.kubelet.pkg.apis.dra.v1beta1.NodeUnprepareResourcesResponse")

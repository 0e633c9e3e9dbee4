"""Stubs, servicers and method paths of dra_v1beta1.proto."""

# Generated from dra_v1beta1.proto by tools/generate_protos.py: edit that file instead.

from protos import _service
from protos.dra_v1beta1 import DESCRIPTOR

__all__ = [
    "NODE_PREPARE_RESOURCES",
    "NODE_UNPREPARE_RESOURCES",
    "DRAPluginServicer",
    "DRAPluginStub",
    "add_DRAPluginServicer_to_server",
]

NODE_PREPARE_RESOURCES = "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources"
NODE_UNPREPARE_RESOURCES = "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources"

_DRAPlugin = DESCRIPTOR.services_by_name["DRAPlugin"]
DRAPluginStub = _service.stub(_DRAPlugin, __name__)
DRAPluginServicer = _service.servicer(_DRAPlugin, __name__)
add_DRAPluginServicer_to_server = _service.adder(_DRAPlugin)

"""Stubs, servicers and method paths of drahealth_v1alpha1.proto."""

# Generated from drahealth_v1alpha1.proto by tools/generate_protos.py: edit that file instead.

from protos import _service
from protos.drahealth_v1alpha1 import DESCRIPTOR

__all__ = [
    "NODE_WATCH_RESOURCES",
    "DRAResourceHealthServicer",
    "DRAResourceHealthStub",
    "add_DRAResourceHealthServicer_to_server",
]

NODE_WATCH_RESOURCES = "/v1alpha1.DRAResourceHealth/NodeWatchResources"

_DRAResourceHealth = DESCRIPTOR.services_by_name["DRAResourceHealth"]
DRAResourceHealthStub = _service.stub(_DRAResourceHealth, __name__)
DRAResourceHealthServicer = _service.servicer(_DRAResourceHealth, __name__)
add_DRAResourceHealthServicer_to_server = _service.adder(_DRAResourceHealth)

"""Stubs, servicers and method paths of podresources_v1alpha1.proto."""

# Generated from podresources_v1alpha1.proto by tools/generate_protos.py: edit that file instead.

from protos import _service
from protos.podresources_v1alpha1 import DESCRIPTOR

__all__ = [
    "LIST",
    "PodResourcesListerServicer",
    "PodResourcesListerStub",
    "add_PodResourcesListerServicer_to_server",
]

LIST = "/v1alpha1.PodResourcesLister/List"

_PodResourcesLister = DESCRIPTOR.services_by_name["PodResourcesLister"]
PodResourcesListerStub = _service.stub(_PodResourcesLister, __name__)
PodResourcesListerServicer = _service.servicer(_PodResourcesLister, __name__)
add_PodResourcesListerServicer_to_server = _service.adder(_PodResourcesLister)

"""Stubs, servicers and method paths of podresources_v1.proto."""

# Generated from podresources_v1.proto by tools/generate_protos.py: edit that file instead.

from protos import _service
from protos.podresources_v1 import DESCRIPTOR

__all__ = [
    "GET",
    "GET_ALLOCATABLE_RESOURCES",
    "LIST",
    "PodResourcesListerServicer",
    "PodResourcesListerStub",
    "add_PodResourcesListerServicer_to_server",
]

LIST = "/v1.PodResourcesLister/List"
GET_ALLOCATABLE_RESOURCES = "/v1.PodResourcesLister/GetAllocatableResources"
GET = "/v1.PodResourcesLister/Get"

_PodResourcesLister = DESCRIPTOR.services_by_name["PodResourcesLister"]
PodResourcesListerStub = _service.stub(_PodResourcesLister, __name__)
PodResourcesListerServicer = _service.servicer(_PodResourcesLister, __name__)
add_PodResourcesListerServicer_to_server = _service.adder(_PodResourcesLister)

"""Stubs, servicers and method paths of pods_v1alpha1.proto."""

# Generated from pods_v1alpha1.proto by tools/generate_protos.py: edit that file instead.

from protos import _service
from protos.pods_v1alpha1 import DESCRIPTOR

__all__ = [
    "GET_POD",
    "LIST_PODS",
    "WATCH_PODS",
    "PodsServicer",
    "PodsStub",
    "add_PodsServicer_to_server",
]

WATCH_PODS = "/v1alpha1.Pods/WatchPods"
LIST_PODS = "/v1alpha1.Pods/ListPods"
GET_POD = "/v1alpha1.Pods/GetPod"

_Pods = DESCRIPTOR.services_by_name["Pods"]
PodsStub = _service.stub(_Pods, __name__)
PodsServicer = _service.servicer(_Pods, __name__)
add_PodsServicer_to_server = _service.adder(_Pods)

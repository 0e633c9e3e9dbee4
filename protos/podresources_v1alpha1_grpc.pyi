"""Stubs, servicers and method paths of podresources_v1alpha1.proto."""

# Generated from podresources_v1alpha1.proto by tools/generate_protos.py: edit that file instead.

from typing import Final

import grpc

from protos import podresources_v1alpha1 as _pb

LIST: Final = "/v1alpha1.PodResourcesLister/List"

class PodResourcesListerStub:
    """Served by the kubelet to monitoring agents on the same node."""
    def __init__(self, channel: grpc.Channel) -> None: ...
    List: grpc.UnaryUnaryMultiCallable[_pb.ListPodResourcesRequest, _pb.ListPodResourcesResponse]
    """Returns all pods with the devices of their containers."""

class PodResourcesListerServicer:
    """Served by the kubelet to monitoring agents on the same node."""
    def List(
        self, request: _pb.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> _pb.ListPodResourcesResponse:
        """Returns all pods with the devices of their containers."""

def add_PodResourcesListerServicer_to_server(
    servicer: PodResourcesListerServicer, server: grpc.Server
) -> None: ...

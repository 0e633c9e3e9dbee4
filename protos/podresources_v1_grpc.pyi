"""Stubs, servicers and method paths of podresources_v1.proto."""

# Generated from podresources_v1.proto by tools/generate_protos.py: edit that file instead.

from typing import Final

import grpc

from protos import podresources_v1 as _pb

LIST: Final = "/v1.PodResourcesLister/List"
GET_ALLOCATABLE_RESOURCES: Final = "/v1.PodResourcesLister/GetAllocatableResources"
GET: Final = "/v1.PodResourcesLister/Get"

class PodResourcesListerStub:
    """Served by the kubelet to monitoring agents and CNI plugins on the same node."""
    def __init__(self, channel: grpc.Channel) -> None: ...
    List: grpc.UnaryUnaryMultiCallable[_pb.ListPodResourcesRequest, _pb.ListPodResourcesResponse]
    """Returns all pods with the resources of their containers."""
    GetAllocatableResources: grpc.UnaryUnaryMultiCallable[
        _pb.AllocatableResourcesRequest, _pb.AllocatableResourcesResponse
    ]
    """Returns all resources that can be allocated, in use or not."""
    Get: grpc.UnaryUnaryMultiCallable[_pb.GetPodResourcesRequest, _pb.GetPodResourcesResponse]
    """Returns one pod with the resources of its containers."""

class PodResourcesListerServicer:
    """Served by the kubelet to monitoring agents and CNI plugins on the same node."""
    def List(
        self, request: _pb.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> _pb.ListPodResourcesResponse:
        """Returns all pods with the resources of their containers."""
    def GetAllocatableResources(
        self, request: _pb.AllocatableResourcesRequest, context: grpc.ServicerContext
    ) -> _pb.AllocatableResourcesResponse:
        """Returns all resources that can be allocated, in use or not."""
    def Get(
        self, request: _pb.GetPodResourcesRequest, context: grpc.ServicerContext
    ) -> _pb.GetPodResourcesResponse:
        """Returns one pod with the resources of its containers."""

def add_PodResourcesListerServicer_to_server(
    servicer: PodResourcesListerServicer, server: grpc.Server
) -> None: ...

"""Stubs, servicers and method paths of pods_v1alpha1.proto."""

# Generated from pods_v1alpha1.proto by tools/generate_protos.py: edit that file instead.

from collections.abc import Iterator
from typing import Final

import grpc

from protos import pods_v1alpha1 as _pb

WATCH_PODS: Final = "/v1alpha1.Pods/WatchPods"
LIST_PODS: Final = "/v1alpha1.Pods/ListPods"
GET_POD: Final = "/v1alpha1.Pods/GetPod"

class PodsStub:
    def __init__(self, channel: grpc.Channel) -> None: ...
    WatchPods: grpc.UnaryStreamMultiCallable[_pb.WatchPodsRequest, _pb.WatchPodsEvent]
    """An ADDED event for each pod, INITIAL_SYNC_COMPLETE, then an event for each change."""
    ListPods: grpc.UnaryUnaryMultiCallable[_pb.ListPodsRequest, _pb.ListPodsResponse]
    """All pods, sorted by UID."""
    GetPod: grpc.UnaryUnaryMultiCallable[_pb.GetPodRequest, _pb.GetPodResponse]
    """The pod with a UID."""

class PodsServicer:
    def WatchPods(
        self, request: _pb.WatchPodsRequest, context: grpc.ServicerContext
    ) -> Iterator[_pb.WatchPodsEvent]:
        """An ADDED event for each pod, INITIAL_SYNC_COMPLETE, then an event for each change."""
    def ListPods(
        self, request: _pb.ListPodsRequest, context: grpc.ServicerContext
    ) -> _pb.ListPodsResponse:
        """All pods, sorted by UID."""
    def GetPod(
        self, request: _pb.GetPodRequest, context: grpc.ServicerContext
    ) -> _pb.GetPodResponse:
        """The pod with a UID."""

def add_PodsServicer_to_server(
    servicer: PodsServicer, server: grpc.Server
) -> None: ...

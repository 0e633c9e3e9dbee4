"""Stubs, servicers and method paths of drahealth_v1alpha1.proto."""

# Generated from drahealth_v1alpha1.proto by tools/generate_protos.py: edit that file instead.

from collections.abc import Iterator
from typing import Final

import grpc

from protos import drahealth_v1alpha1 as _pb

NODE_WATCH_RESOURCES: Final = "/v1alpha1.DRAResourceHealth/NodeWatchResources"

class DRAResourceHealthStub:
    """Served by the driver, called by the kubelet."""
    def __init__(self, channel: grpc.Channel) -> None: ...
    NodeWatchResources: grpc.UnaryStreamMultiCallable[
        _pb.NodeWatchResourcesRequest, _pb.NodeWatchResourcesResponse
    ]
    """Sends all devices first, then again after each change."""

class DRAResourceHealthServicer:
    """Served by the driver, called by the kubelet."""
    def NodeWatchResources(
        self, request: _pb.NodeWatchResourcesRequest, context: grpc.ServicerContext
    ) -> Iterator[_pb.NodeWatchResourcesResponse]:
        """Sends all devices first, then again after each change."""

def add_DRAResourceHealthServicer_to_server(
    servicer: DRAResourceHealthServicer, server: grpc.Server
) -> None: ...

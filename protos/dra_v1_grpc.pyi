"""Stubs, servicers and method paths of dra_v1.proto."""

# Generated from dra_v1.proto by tools/generate_protos.py: edit that file instead.

from typing import Final

import grpc

from protos import dra_v1 as _pb

NODE_PREPARE_RESOURCES: Final = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
NODE_UNPREPARE_RESOURCES: Final = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources"

class DRAPluginStub:
    """Served by the driver, called by the kubelet."""
    def __init__(self, channel: grpc.Channel) -> None: ...
    NodePrepareResources: grpc.UnaryUnaryMultiCallable[
        _pb.NodePrepareResourcesRequest, _pb.NodePrepareResourcesResponse
    ]
    """Prepares the devices of claims for use on this node. The call can be repeated."""
    NodeUnprepareResources: grpc.UnaryUnaryMultiCallable[
        _pb.NodeUnprepareResourcesRequest, _pb.NodeUnprepareResourcesResponse
    ]
    """Undoes NodePrepareResources. Claims that the driver does not know are no error."""

class DRAPluginServicer:
    """Served by the driver, called by the kubelet."""
    def NodePrepareResources(
        self, request: _pb.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> _pb.NodePrepareResourcesResponse:
        """Prepares the devices of claims for use on this node. The call can be repeated."""
    def NodeUnprepareResources(
        self, request: _pb.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> _pb.NodeUnprepareResourcesResponse:
        """Undoes NodePrepareResources. Claims that the driver does not know are no error."""

def add_DRAPluginServicer_to_server(
    servicer: DRAPluginServicer, server: grpc.Server
) -> None: ...

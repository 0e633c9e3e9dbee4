"""Stubs, servicers and method paths of nri_v1alpha1.proto."""

# Generated from nri_v1alpha1.proto by tools/generate_protos.py: edit that file instead.

from typing import Final

import grpc

from protos import nri_v1alpha1 as _pb

REGISTER_PLUGIN: Final = "/nri.pkg.api.v1alpha1.Runtime/RegisterPlugin"
UPDATE_CONTAINERS: Final = "/nri.pkg.api.v1alpha1.Runtime/UpdateContainers"
CONFIGURE: Final = "/nri.pkg.api.v1alpha1.Plugin/Configure"
SYNCHRONIZE: Final = "/nri.pkg.api.v1alpha1.Plugin/Synchronize"
CREATE_CONTAINER: Final = "/nri.pkg.api.v1alpha1.Plugin/CreateContainer"
STOP_CONTAINER: Final = "/nri.pkg.api.v1alpha1.Plugin/StopContainer"
STATE_CHANGE: Final = "/nri.pkg.api.v1alpha1.Plugin/StateChange"

class RuntimeStub:
    def __init__(self, channel: grpc.Channel) -> None: ...
    RegisterPlugin: grpc.UnaryUnaryMultiCallable[_pb.RegisterPluginRequest, _pb.Empty]
    """The first call of a plugin."""
    UpdateContainers: grpc.UnaryUnaryMultiCallable[
        _pb.UpdateContainersRequest, _pb.UpdateContainersResponse
    ]
    """Change containers at any time."""

class RuntimeServicer:
    def RegisterPlugin(
        self, request: _pb.RegisterPluginRequest, context: grpc.ServicerContext
    ) -> _pb.Empty:
        """The first call of a plugin."""
    def UpdateContainers(
        self, request: _pb.UpdateContainersRequest, context: grpc.ServicerContext
    ) -> _pb.UpdateContainersResponse:
        """Change containers at any time."""

def add_RuntimeServicer_to_server(
    servicer: RuntimeServicer, server: grpc.Server
) -> None: ...

class PluginStub:
    def __init__(self, channel: grpc.Channel) -> None: ...
    Configure: grpc.UnaryUnaryMultiCallable[_pb.ConfigureRequest, _pb.ConfigureResponse]
    """The runtime's first call. The response has the events that the plugin subscribes to."""
    Synchronize: grpc.UnaryUnaryMultiCallable[_pb.SynchronizeRequest, _pb.SynchronizeResponse]
    """All pods and containers, once after Configure."""
    CreateContainer: grpc.UnaryUnaryMultiCallable[
        _pb.CreateContainerRequest, _pb.CreateContainerResponse
    ]
    """Before a container is created. An error prevents its creation."""
    StopContainer: grpc.UnaryUnaryMultiCallable[_pb.StopContainerRequest, _pb.StopContainerResponse]
    """After a container has stopped."""
    StateChange: grpc.UnaryUnaryMultiCallable[_pb.StateChangeEvent, _pb.Empty]
    """Every other event."""

class PluginServicer:
    def Configure(
        self, request: _pb.ConfigureRequest, context: grpc.ServicerContext
    ) -> _pb.ConfigureResponse:
        """The runtime's first call. The response has the events that the plugin subscribes to."""
    def Synchronize(
        self, request: _pb.SynchronizeRequest, context: grpc.ServicerContext
    ) -> _pb.SynchronizeResponse:
        """All pods and containers, once after Configure."""
    def CreateContainer(
        self, request: _pb.CreateContainerRequest, context: grpc.ServicerContext
    ) -> _pb.CreateContainerResponse:
        """Before a container is created. An error prevents its creation."""
    def StopContainer(
        self, request: _pb.StopContainerRequest, context: grpc.ServicerContext
    ) -> _pb.StopContainerResponse:
        """After a container has stopped."""
    def StateChange(
        self, request: _pb.StateChangeEvent, context: grpc.ServicerContext
    ) -> _pb.Empty:
        """Every other event."""

def add_PluginServicer_to_server(
    servicer: PluginServicer, server: grpc.Server
) -> None: ...

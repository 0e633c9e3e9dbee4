"""Stubs, servicers and method paths of deviceplugin_v1beta1.proto."""

# Generated from deviceplugin_v1beta1.proto by tools/generate_protos.py: edit that file instead.

from collections.abc import Iterator
from typing import Final

import grpc

from protos import deviceplugin_v1beta1 as _pb

REGISTER: Final = "/v1beta1.Registration/Register"
GET_DEVICE_PLUGIN_OPTIONS: Final = "/v1beta1.DevicePlugin/GetDevicePluginOptions"
LIST_AND_WATCH: Final = "/v1beta1.DevicePlugin/ListAndWatch"
GET_PREFERRED_ALLOCATION: Final = "/v1beta1.DevicePlugin/GetPreferredAllocation"
ALLOCATE: Final = "/v1beta1.DevicePlugin/Allocate"
PRE_START_CONTAINER: Final = "/v1beta1.DevicePlugin/PreStartContainer"

class RegistrationStub:
    """Served by the kubelet."""
    def __init__(self, channel: grpc.Channel) -> None: ...
    Register: grpc.UnaryUnaryMultiCallable[_pb.RegisterRequest, _pb.Empty]
    """Registers a plugin. The kubelet dials the endpoint in the request, so the
    plugin must be serving before it calls this.
    """

class RegistrationServicer:
    """Served by the kubelet."""
    def Register(
        self, request: _pb.RegisterRequest, context: grpc.ServicerContext
    ) -> _pb.Empty:
        """Registers a plugin. The kubelet dials the endpoint in the request, so the
        plugin must be serving before it calls this.
        """

def add_RegistrationServicer_to_server(
    servicer: RegistrationServicer, server: grpc.Server
) -> None: ...

class DevicePluginStub:
    """Served by the plugin, called by the kubelet."""
    def __init__(self, channel: grpc.Channel) -> None: ...
    GetDevicePluginOptions: grpc.UnaryUnaryMultiCallable[_pb.Empty, _pb.DevicePluginOptions]
    """Returns the optional calls that the plugin supports."""
    ListAndWatch: grpc.UnaryStreamMultiCallable[_pb.Empty, _pb.ListAndWatchResponse]
    """Streams the plugin's devices: the whole list at once, and the whole list
    again when a device appears, disappears or changes health.
    """
    GetPreferredAllocation: grpc.UnaryUnaryMultiCallable[
        _pb.PreferredAllocationRequest, _pb.PreferredAllocationResponse
    ]
    """Returns the devices that the plugin prefers. Only called if
    DevicePluginOptions.get_preferred_allocation_available is set. The response
    is not binding for the kubelet.
    """
    Allocate: grpc.UnaryUnaryMultiCallable[_pb.AllocateRequest, _pb.AllocateResponse]
    """Called while a pod is admitted. Returns the settings that its containers
    need to use the chosen devices.
    """
    PreStartContainer: grpc.UnaryUnaryMultiCallable[
        _pb.PreStartContainerRequest, _pb.PreStartContainerResponse
    ]
    """Called before each start of a container with devices, if
    DevicePluginOptions.pre_start_required is set. Usually resets the devices.
    """

class DevicePluginServicer:
    """Served by the plugin, called by the kubelet."""
    def GetDevicePluginOptions(
        self, request: _pb.Empty, context: grpc.ServicerContext
    ) -> _pb.DevicePluginOptions:
        """Returns the optional calls that the plugin supports."""
    def ListAndWatch(
        self, request: _pb.Empty, context: grpc.ServicerContext
    ) -> Iterator[_pb.ListAndWatchResponse]:
        """Streams the plugin's devices: the whole list at once, and the whole list
        again when a device appears, disappears or changes health.
        """
    def GetPreferredAllocation(
        self, request: _pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> _pb.PreferredAllocationResponse:
        """Returns the devices that the plugin prefers. Only called if
        DevicePluginOptions.get_preferred_allocation_available is set. The response
        is not binding for the kubelet.
        """
    def Allocate(
        self, request: _pb.AllocateRequest, context: grpc.ServicerContext
    ) -> _pb.AllocateResponse:
        """Called while a pod is admitted. Returns the settings that its containers
        need to use the chosen devices.
        """
    def PreStartContainer(
        self, request: _pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> _pb.PreStartContainerResponse:
        """Called before each start of a container with devices, if
        DevicePluginOptions.pre_start_required is set. Usually resets the devices.
        """

def add_DevicePluginServicer_to_server(
    servicer: DevicePluginServicer, server: grpc.Server
) -> None: ...

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
    """Announces a plugin. The kubelet dials back to the endpoint it names, so a
    plugin must be serving before it calls this.
    """

class RegistrationServicer:
    """Served by the kubelet."""
    def Register(
        self, request: _pb.RegisterRequest, context: grpc.ServicerContext
    ) -> _pb.Empty:
        """Announces a plugin. The kubelet dials back to the endpoint it names, so a
        plugin must be serving before it calls this.
        """

def add_RegistrationServicer_to_server(
    servicer: RegistrationServicer, server: grpc.Server
) -> None: ...

class DevicePluginStub:
    """Served by the plugin, called by the kubelet."""
    def __init__(self, channel: grpc.Channel) -> None: ...
    GetDevicePluginOptions: grpc.UnaryUnaryMultiCallable[_pb.Empty, _pb.DevicePluginOptions]
    """Asks which optional calls the plugin wants."""
    ListAndWatch: grpc.UnaryStreamMultiCallable[_pb.Empty, _pb.ListAndWatchResponse]
    """Streams the plugin's devices: the whole list at once, and the whole list
    again whenever a device appears, disappears or changes health.
    """
    GetPreferredAllocation: grpc.UnaryUnaryMultiCallable[
        _pb.PreferredAllocationRequest, _pb.PreferredAllocationResponse
    ]
    """Asks which of the available devices the plugin would choose. Only called
    if DevicePluginOptions.get_preferred_allocation_available is set; the
    answer is advice, the kubelet may decide otherwise.
    """
    Allocate: grpc.UnaryUnaryMultiCallable[_pb.AllocateRequest, _pb.AllocateResponse]
    """Called while a pod is admitted: what must its containers be given so that
    they can use the devices chosen for them?
    """
    PreStartContainer: grpc.UnaryUnaryMultiCallable[
        _pb.PreStartContainerRequest, _pb.PreStartContainerResponse
    ]
    """Called before each start of a container that holds devices, if
    DevicePluginOptions.pre_start_required is set. Usually resets the devices.
    """

class DevicePluginServicer:
    """Served by the plugin, called by the kubelet."""
    def GetDevicePluginOptions(
        self, request: _pb.Empty, context: grpc.ServicerContext
    ) -> _pb.DevicePluginOptions:
        """Asks which optional calls the plugin wants."""
    def ListAndWatch(
        self, request: _pb.Empty, context: grpc.ServicerContext
    ) -> Iterator[_pb.ListAndWatchResponse]:
        """Streams the plugin's devices: the whole list at once, and the whole list
        again whenever a device appears, disappears or changes health.
        """
    def GetPreferredAllocation(
        self, request: _pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> _pb.PreferredAllocationResponse:
        """Asks which of the available devices the plugin would choose. Only called
        if DevicePluginOptions.get_preferred_allocation_available is set; the
        answer is advice, the kubelet may decide otherwise.
        """
    def Allocate(
        self, request: _pb.AllocateRequest, context: grpc.ServicerContext
    ) -> _pb.AllocateResponse:
        """Called while a pod is admitted: what must its containers be given so that
        they can use the devices chosen for them?
        """
    def PreStartContainer(
        self, request: _pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> _pb.PreStartContainerResponse:
        """Called before each start of a container that holds devices, if
        DevicePluginOptions.pre_start_required is set. Usually resets the devices.
        """

def add_DevicePluginServicer_to_server(
    servicer: DevicePluginServicer, server: grpc.Server
) -> None: ...

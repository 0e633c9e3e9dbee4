"""Stubs, servicers and method paths of pluginregistration_v1.proto."""

# Generated from pluginregistration_v1.proto by tools/generate_protos.py: edit that file instead.

from typing import Final

import grpc

from protos import pluginregistration_v1 as _pb

GET_INFO: Final = "/pluginregistration.Registration/GetInfo"
NOTIFY_REGISTRATION_STATUS: Final = "/pluginregistration.Registration/NotifyRegistrationStatus"

class RegistrationStub:
    """Served by the plugin, called by the kubelet."""
    def __init__(self, channel: grpc.Channel) -> None: ...
    GetInfo: grpc.UnaryUnaryMultiCallable[_pb.InfoRequest, _pb.PluginInfo]
    """Returns type and name of the plugin."""
    NotifyRegistrationStatus: grpc.UnaryUnaryMultiCallable[
        _pb.RegistrationStatus, _pb.RegistrationStatusResponse
    ]
    """Reports to the plugin whether the kubelet has registered it."""

class RegistrationServicer:
    """Served by the plugin, called by the kubelet."""
    def GetInfo(
        self, request: _pb.InfoRequest, context: grpc.ServicerContext
    ) -> _pb.PluginInfo:
        """Returns type and name of the plugin."""
    def NotifyRegistrationStatus(
        self, request: _pb.RegistrationStatus, context: grpc.ServicerContext
    ) -> _pb.RegistrationStatusResponse:
        """Reports to the plugin whether the kubelet has registered it."""

def add_RegistrationServicer_to_server(
    servicer: RegistrationServicer, server: grpc.Server
) -> None: ...

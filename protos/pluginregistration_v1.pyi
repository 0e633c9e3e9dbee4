"""Plugin registration, v1: how the kubelet's plugin watcher discovers plugins.

The plugin serves this on a socket in the plugins_registry directory. The
kubelet finds the socket, requests information about the plugin and reports
the result of the registration.
"""

# Generated from pluginregistration_v1.proto by tools/generate_protos.py: edit that file instead.

from collections.abc import Iterable

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.containers import RepeatedScalarFieldContainer
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor

class PluginInfo(Message):
    """Type and name of a plugin."""
    type: str
    """"DevicePlugin", "DRAPlugin" or "CSIPlugin"."""
    name: str
    """For a device plugin the extended resource, such as "vendor.com/gpu"."""
    endpoint: str
    """Socket of the plugin's service; empty means this socket."""
    @property
    def supported_versions(self) -> RepeatedScalarFieldContainer[str]:
        """Versions of that service."""
    def __init__(
        self,
        *,
        type: str | None = ...,
        name: str | None = ...,
        endpoint: str | None = ...,
        supported_versions: Iterable[str] | None = ...,
    ) -> None: ...

class RegistrationStatus(Message):
    """The result of a registration."""
    plugin_registered: bool
    error: str
    """The reason for a rejection."""
    def __init__(
        self,
        *,
        plugin_registered: bool | None = ...,
        error: str | None = ...,
    ) -> None: ...

class RegistrationStatusResponse(Message):
    """An empty message."""
    def __init__(self) -> None: ...

class InfoRequest(Message):
    """An empty message."""
    def __init__(self) -> None: ...

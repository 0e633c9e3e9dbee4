"""Plugin registration, v1: how the kubelet's plugin watcher meets a plugin.

The plugin serves this on a socket it puts into the plugins_registry
directory. The kubelet finds the socket, asks who is there and says how the
registration ended.
"""

# Generated from pluginregistration_v1.proto by tools/generate_protos.py: edit that file instead.

from collections.abc import Iterable

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.containers import RepeatedScalarFieldContainer
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor

class PluginInfo(Message):
    """Who serves a socket."""
    type: str
    """"DevicePlugin", "DRAPlugin" or "CSIPlugin"."""
    name: str
    """For a device plugin the extended resource, such as "vendor.com/gpu"."""
    endpoint: str
    """Socket the plugin's own service is on; empty means this very one."""
    @property
    def supported_versions(self) -> RepeatedScalarFieldContainer[str]:
        """Versions of that service the plugin speaks."""
    def __init__(
        self,
        *,
        type: str | None = ...,
        name: str | None = ...,
        endpoint: str | None = ...,
        supported_versions: Iterable[str] | None = ...,
    ) -> None: ...

class RegistrationStatus(Message):
    """How a registration ended."""
    plugin_registered: bool
    error: str
    """Why not, where it was rejected."""
    def __init__(
        self,
        *,
        plugin_registered: bool | None = ...,
        error: str | None = ...,
    ) -> None: ...

class RegistrationStatusResponse(Message):
    """Nothing to say."""
    def __init__(self) -> None: ...

class InfoRequest(Message):
    """Asks who is there."""
    def __init__(self) -> None: ...

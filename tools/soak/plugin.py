"""The plugin of the soak: serves, and starts anew when told to.

``DIRECTORY DEVICES``, then a line on stdin for each start; answered once the kubelet has
taken the registration. A start anew is what a plugin does that was updated: the server
ends and with it every stream, the socket is another one under the same name.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import grpc

from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from tools.bench.plugin import RESOURCE, device_list, socket_name

_GRACE: Final = 5.0
_TIMEOUT: Final = 30.0


class _Plugin(dp_grpc.DevicePluginServicer):
    """One life of the plugin."""

    def __init__(self, devices: dp.ListAndWatchResponse) -> None:
        self._devices = devices
        self._ended = threading.Event()

    def GetDevicePluginOptions(
        self, request: dp.Empty, context: grpc.ServicerContext
    ) -> dp.DevicePluginOptions:
        return dp.DevicePluginOptions(pre_start_required=True)

    def ListAndWatch(
        self, request: dp.Empty, context: grpc.ServicerContext
    ) -> Iterator[dp.ListAndWatchResponse]:
        context.add_callback(self._ended.set)
        yield self._devices
        self._ended.wait()

    def Allocate(
        self, request: dp.AllocateRequest, context: grpc.ServicerContext
    ) -> dp.AllocateResponse:
        return dp.AllocateResponse(
            container_responses=[
                dp.ContainerAllocateResponse(envs={"DEVICES": ",".join(asked.devices_ids)})
                for asked in request.container_requests
            ]
        )

    def PreStartContainer(
        self, request: dp.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> dp.PreStartContainerResponse:
        return dp.PreStartContainerResponse()

    def end(self) -> None:
        self._ended.set()


def _serve(directory: Path, plugin: _Plugin) -> grpc.Server:
    server = grpc.server(ThreadPoolExecutor(16))
    dp_grpc.add_DevicePluginServicer_to_server(plugin, server)
    server.add_insecure_port(sockets.target(directory / socket_name(0)))
    server.start()
    return server


def _register(directory: Path) -> None:
    request = dp.RegisterRequest(version="v1beta1", endpoint=socket_name(0), resource_name=RESOURCE)
    with grpc.insecure_channel(sockets.target(directory / "kubelet.sock")) as channel:
        dp_grpc.RegistrationStub(channel).Register(request, timeout=_TIMEOUT)


def main(arguments: Sequence[str]) -> None:
    """Serve until stdin ends."""
    directory, devices = Path(arguments[0]), int(arguments[1])
    listed = dp.ListAndWatchResponse.FromString(device_list(devices, nodes=2))
    running: tuple[grpc.Server, _Plugin] | None = None
    print("ready", flush=True)
    for _ in sys.stdin:
        if running is not None:
            server, plugin = running
            plugin.end()
            server.stop(_GRACE).wait()
        plugin = _Plugin(listed)
        running = _serve(directory, plugin), plugin
        _register(directory)
        print("registered", flush=True)
    # A stream may still wait for its end: there is nothing to clean up.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])

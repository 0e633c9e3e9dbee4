"""The good plugin: ``DIRECTORY DEVICES ID_LENGTH``, then requests on stdin.

Each ``register`` registers anew, and is answered once the kubelet has asked for the list.
"""

from __future__ import annotations

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
from tools.attack.requests import leave, serve

RESOURCE: Final = "good.example.com/device"
_SOCKET: Final = "good.sock"
_TIMEOUT: Final = 120.0


class Plugin(dp_grpc.DevicePluginServicer):
    """As plain as a plugin can be."""

    def __init__(self, directory: Path, devices: int, id_length: int) -> None:
        self._directory = directory
        ids = [f"good-{number}".ljust(id_length, "x") for number in range(devices)]
        self._list = dp.ListAndWatchResponse(
            devices=[dp.Device(ID=each, health="Healthy") for each in ids]
        )
        self._listed = threading.Semaphore(0)
        self._server = grpc.server(ThreadPoolExecutor(256))
        dp_grpc.add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(sockets.target(directory / _SOCKET))
        self._server.start()

    def register(self) -> None:
        """Raises RuntimeError with the refusal, or if no list was asked for."""
        request = dp.RegisterRequest(version="v1beta1", endpoint=_SOCKET, resource_name=RESOURCE)
        target = sockets.target(self._directory / "kubelet.sock")
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(target, options) as channel:
            try:
                dp_grpc.RegistrationStub(channel).Register(request, timeout=_TIMEOUT)
            except grpc.RpcError as error:
                text = error.details() if isinstance(error, grpc.Call) else error
                raise RuntimeError(str(text)) from error
        if not self._listed.acquire(timeout=_TIMEOUT):
            raise RuntimeError("the list was never asked for")

    def ListAndWatch(
        self, request: dp.Empty, context: grpc.ServicerContext
    ) -> Iterator[dp.ListAndWatchResponse]:
        ended = threading.Event()
        if context.add_callback(ended.set):
            self._listed.release()
            yield self._list
            ended.wait()

    def GetDevicePluginOptions(
        self, request: dp.Empty, context: grpc.ServicerContext
    ) -> dp.DevicePluginOptions:
        return dp.DevicePluginOptions()

    def Allocate(
        self, request: dp.AllocateRequest, context: grpc.ServicerContext
    ) -> dp.AllocateResponse:
        return dp.AllocateResponse(
            container_responses=[
                dp.ContainerAllocateResponse(envs={"GOOD": str(len(asked.devices_ids))})
                for asked in request.container_requests
            ]
        )


def main(arguments: Sequence[str]) -> None:
    """Serve until stdin ends."""
    plugin = Plugin(Path(arguments[0]), int(arguments[1]), int(arguments[2]))
    serve({"register": plugin.register})
    leave()


if __name__ == "__main__":
    main(sys.argv[1:])

"""The good plugin: ``DIRECTORY DEVICES ID_LENGTH``, then requests on stdin.

Each ``register`` registers anew, each ``announce`` waits to be found anew in the directory
for that; both are answered once the kubelet has asked for the list.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import grpc

from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from protos import pluginregistration_v1 as pr
from protos import pluginregistration_v1_grpc as pr_grpc
from tools.attack.requests import leave, serve

RESOURCE: Final = "good.example.com/device"
_SOCKET: Final = "good.sock"
_TIMEOUT: Final = 120.0
_PAUSE: Final = 0.02


class Plugin(dp_grpc.DevicePluginServicer, pr_grpc.RegistrationServicer):
    """As plain as a plugin can be."""

    def __init__(self, directory: Path, devices: int, id_length: int) -> None:
        self._directory = directory
        ids = [f"good-{number}".ljust(id_length, "x") for number in range(devices)]
        self._list = dp.ListAndWatchResponse(
            devices=[dp.Device(ID=each, health="Healthy") for each in ids]
        )
        self._listed = threading.Semaphore(0)
        self._announced: grpc.Server | None = None
        self._numbers = itertools.count()
        self._server = self._serve(directory / _SOCKET)

    def _serve(self, socket: Path) -> grpc.Server:
        server = grpc.server(ThreadPoolExecutor(256))
        dp_grpc.add_DevicePluginServicer_to_server(self, server)
        pr_grpc.add_RegistrationServicer_to_server(self, server)
        server.add_insecure_port(sockets.target(socket))
        server.start()
        return server

    def announce(self) -> None:
        """Raises RuntimeError if no list was asked for."""
        if self._announced is not None:
            self._announced.stop(0).wait()
        registry = self._directory.parent / "plugins_registry"
        self._announced = self._serve(registry / f"good-{next(self._numbers)}.sock")
        self._wait_listed()

    def register(self) -> None:
        """Raises RuntimeError with the rejection, or if no list was asked for."""
        end = time.monotonic() + _TIMEOUT
        while (error := self._registered()) is not None:
            # gRPC itself turns calls away while too many wait; plugins try again then.
            if error.code() is not grpc.StatusCode.CANCELLED or time.monotonic() > end:
                raise RuntimeError(str(error.details()))
            time.sleep(_PAUSE)
        self._wait_listed()

    def _registered(self) -> grpc.Call | None:
        """The error of one attempt, if there was one."""
        request = dp.RegisterRequest(version="v1beta1", endpoint=_SOCKET, resource_name=RESOURCE)
        target = sockets.target(self._directory / "kubelet.sock")
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(target, options) as channel:
            try:
                dp_grpc.RegistrationStub(channel).Register(request, timeout=_TIMEOUT)
            except grpc.RpcError as error:
                assert isinstance(error, grpc.Call), "of a call"
                return error
        return None

    def _wait_listed(self) -> None:
        if not self._listed.acquire(timeout=_TIMEOUT):
            raise RuntimeError("the list was never asked for")

    def GetInfo(self, request: pr.InfoRequest, context: grpc.ServicerContext) -> pr.PluginInfo:
        return pr.PluginInfo(type="DevicePlugin", name=RESOURCE, supported_versions=["v1beta1"])

    def NotifyRegistrationStatus(
        self, request: pr.RegistrationStatus, context: grpc.ServicerContext
    ) -> pr.RegistrationStatusResponse:
        return pr.RegistrationStatusResponse()

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
    serve({"register": plugin.register, "announce": plugin.announce})
    leave()


if __name__ == "__main__":
    main(sys.argv[1:])

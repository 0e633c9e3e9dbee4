"""Run a well-behaved plugin in a helper process.

Arguments: ``DIRECTORY RESOURCE DEVICES ID_LENGTH NODES``. The plugin responds to each of these
requests when the kubelet has opened its ListAndWatch stream:

* ``start``: stop the server, serve on a new socket with the same name, and register, like a plugin
  after an update.
* ``register``: register again with the same server.
* ``announce``: serve on a new socket in ``plugins_registry``, where the kubelet discovers it.
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
from tools.harness.process import HelperProcess, exit_now, serve

RESOURCE: Final = "good.example.com/device"
SOCKET: Final = "good.sock"
_TIMEOUT: Final = 120.0
_RETRY: Final = 0.02
_GRACE: Final = 5.0

Context = grpc.ServicerContext
_List = dp.ListAndWatchResponse


def plugin_process(
    directory: Path, devices: int, id_length: int = 0, nodes: int = 0
) -> HelperProcess:
    """Start the plugin in a helper process.

    Its devices are spread over ``nodes`` NUMA nodes; with 0 they have no topology. Device IDs have
    at least ``id_length`` bytes.
    """
    return HelperProcess("tools.harness.plugin", directory, RESOURCE, devices, id_length, nodes)


class Plugin(dp_grpc.DevicePluginServicer, pr_grpc.RegistrationServicer):
    """Minimal correct plugin: it does only what the API requires."""

    def __init__(
        self, directory: Path, resource: str, devices: int, id_length: int, nodes: int
    ) -> None:
        self._directory = directory
        self._resource = resource
        self._list = _List()
        share = -(-devices // max(nodes, 1))
        for number in range(devices):
            id_ = f"device-{number:05}".ljust(id_length, "x")
            device = self._list.devices.add(ID=id_, health="Healthy")
            if nodes:
                device.topology.nodes.add(ID=number // share)
        self._listed = threading.Semaphore(0)
        self._streams: set[threading.Event] = set()
        self._server: grpc.Server | None = None
        self._announced: grpc.Server | None = None
        self._numbers = itertools.count()

    def _serve(self, socket: Path) -> grpc.Server:
        # Use many threads: an attack can make the kubelet open many streams, each of which needs a
        # thread.
        server = grpc.server(ThreadPoolExecutor(256))
        dp_grpc.add_DevicePluginServicer_to_server(self, server)
        pr_grpc.add_RegistrationServicer_to_server(self, server)
        server.add_insecure_port(sockets.target(socket))
        server.start()
        return server

    def start(self) -> None:
        """Serve on a new socket and register."""
        if self._server is not None:
            # End the streams first: during the grace period, only other calls may still complete.
            for stream in list(self._streams):
                stream.set()
            self._server.stop(_GRACE).wait()
        # Use a new semaphore: a late ListAndWatch call to the old server must not count.
        self._listed = threading.Semaphore(0)
        self._server = None
        self.register()

    def announce(self) -> None:
        """Serve in ``plugins_registry`` and wait for the kubelet's ListAndWatch call. Raises
        RuntimeError on timeout."""
        if self._announced is not None:
            self._announced.stop(0).wait()
        registry = self._directory.parent / "plugins_registry"
        self._announced = self._serve(registry / f"good-{next(self._numbers)}.sock")
        self._wait_listed()

    def register(self) -> None:
        """Register and wait for the kubelet's ListAndWatch call. Raises RuntimeError if the
        registration is rejected, or on timeout."""
        if self._server is None:
            self._server = self._serve(self._directory / SOCKET)
        end = time.monotonic() + _TIMEOUT
        while (error := self._registration_error()) is not None:
            # gRPC itself cancels calls while too many are waiting. Plugins then retry.
            if error.code() is not grpc.StatusCode.CANCELLED or time.monotonic() > end:
                raise RuntimeError(str(error.details()))
            time.sleep(_RETRY)
        self._wait_listed()

    def _registration_error(self) -> grpc.Call | None:
        request = dp.RegisterRequest(
            version="v1beta1", endpoint=SOCKET, resource_name=self._resource
        )
        target = sockets.target(self._directory / "kubelet.sock")
        # Do not share a subchannel: it could still be connected to the kubelet that ran before a
        # restart.
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(target, options) as channel:
            try:
                dp_grpc.RegistrationStub(channel).Register(request, timeout=_TIMEOUT)
            except grpc.RpcError as error:
                assert isinstance(error, grpc.Call), "every error of a call is a Call"
                return error
        return None

    def _wait_listed(self) -> None:
        if not self._listed.acquire(timeout=_TIMEOUT):
            raise RuntimeError("the kubelet did not call ListAndWatch in time")

    def GetInfo(self, request: pr.InfoRequest, context: Context) -> pr.PluginInfo:
        versions = ["v1beta1"]
        return pr.PluginInfo(type="DevicePlugin", name=self._resource, supported_versions=versions)

    def NotifyRegistrationStatus(
        self, request: pr.RegistrationStatus, context: Context
    ) -> pr.RegistrationStatusResponse:
        return pr.RegistrationStatusResponse()

    def ListAndWatch(self, request: dp.Empty, context: Context) -> Iterator[_List]:
        ended = threading.Event()
        # add_callback returns False if the kubelet has already ended this stream.
        if context.add_callback(ended.set):
            self._streams.add(ended)
            self._listed.release()
            yield self._list
            ended.wait()
            self._streams.discard(ended)

    def GetDevicePluginOptions(self, request: dp.Empty, context: Context) -> dp.DevicePluginOptions:
        return dp.DevicePluginOptions(pre_start_required=True)

    def Allocate(self, request: dp.AllocateRequest, context: Context) -> dp.AllocateResponse:
        responses = [
            dp.ContainerAllocateResponse(envs={"DEVICES": ",".join(each.devices_ids)})
            for each in request.container_requests
        ]
        return dp.AllocateResponse(container_responses=responses)

    def PreStartContainer(
        self, request: dp.PreStartContainerRequest, context: Context
    ) -> dp.PreStartContainerResponse:
        return dp.PreStartContainerResponse()


def main(arguments: Sequence[str]) -> None:
    """Respond to requests until standard input is closed."""
    directory, resource, *numbers = arguments
    plugin = Plugin(Path(directory), resource, *map(int, numbers))
    serve({name: getattr(plugin, name) for name in ("start", "register", "announce")})
    exit_now()


if __name__ == "__main__":
    main(sys.argv[1:])

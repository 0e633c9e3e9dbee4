"""Plugins of the mock kubelet in a scenario: in memory, or servers on real sockets."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol

import grpc

from devicemanager.core.api.deviceplugin import DEVICE_PLUGIN, VERSION
from devicemanager.core.errors import EndpointError, RpcError
from devicemanager.core.ids import DeviceId
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.testing import fakes
from devicemanager.testing.fakes import FakeCall, Preference
from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from protos import pluginregistration_v1 as reg
from protos import pluginregistration_v1_grpc as reg_grpc
from tools.replay.scenario import (
    PREFERENCES,
    Plain,
    ScenarioPlugin,
    device_of,
    plain_call,
    response_of,
)

Described = Mapping[str, Any]

_PATIENCE: Final = 10.0
"""Timeout for the kubelet, in seconds."""


class Rejected(Exception):
    """The kubelet rejected a registration with this gRPC code."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Plugin(Protocol):
    """A plugin of a scenario."""

    name: str
    """File name of the plugin's socket."""

    @property
    def closed(self) -> bool:
        """True if the kubelet has closed the connection."""

    def join(self, kubelet: MockKubelet) -> None:
        """Register with the Registration service. Raises Rejected."""

    def watch(self, kubelet: MockKubelet) -> None:
        """Register through the directory that the kubelet watches. Raises Rejected."""

    def unwatch(self) -> None:
        """Remove the plugin's socket from the directory that the kubelet watches."""

    def send(self, devices: Sequence[Described]) -> None:
        """Send a list and wait until the kubelet has processed it."""

    def stop(self) -> None:
        """End the process and wait until the kubelet has noticed."""


def code_of(error: grpc.RpcError) -> str:
    """Return a gRPC code as Go prints it: ``ResourceExhausted``."""
    return "".join(part.capitalize() for part in str(error.code().name).split("_"))


def send_register(socket: Path, version: str, endpoint: str, resource: str) -> None:
    """Call Register. Raises Rejected."""
    with grpc.insecure_channel(
        sockets.target(socket), [("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        request = dp.RegisterRequest(version=version, endpoint=endpoint, resource_name=resource)
        try:
            dp_grpc.RegistrationStub(channel).Register(request)
        except grpc.RpcError as error:
            raise Rejected(code_of(error), str(error.details())) from error


def _preference(described: Described) -> Preference | None:
    """Return the preference of a plugin that prefers the last devices of its first list.

    It prefers them even if they are not available. None for plugins without a preference.
    """
    if described.get("preferred") != "listed":
        return None
    listed = tuple({DeviceId(each["id"]) for each in described.get("devices") or ()})
    return lambda _, must_include, size: fakes.last(listed, must_include, size)


class MemoryPlugin:
    """A plugin without a socket."""

    def __init__(
        self, name: str, resource: str, described: Described, called: Callable[[Plain], None]
    ) -> None:
        def record(call: FakeCall) -> None:
            called(plain_call(call) | {"resource": resource, "plugin": name})

        self.name = name
        preferred = _preference(described)
        known = {**described, "preferred": ""} if preferred else described
        self._fake = ScenarioPlugin(name, resource, known, record)
        self._fake.preference = preferred or self._fake.preference
        self._has_left = False

    @property
    def closed(self) -> bool:
        return self._fake.closed

    def join(self, kubelet: MockKubelet) -> None:
        try:
            self._fake.register(kubelet.manager.plugins, self.name)
        except EndpointError as error:
            text = str(error).replace(self.name, f"{kubelet.plugin_dir}/{self.name}", 1)
            raise Rejected("Unknown", text) from error

    def watch(self, kubelet: MockKubelet) -> None:
        self.join(kubelet)

    def unwatch(self) -> None:
        self.stop()

    def send(self, devices: Sequence[Described]) -> None:
        self._fake.send_list([device_of({"health": "Healthy", **each}) for each in devices])

    def stop(self) -> None:
        if not self._has_left:
            self._has_left = True
            self._fake.leave()


class SocketPlugin(dp_grpc.DevicePluginServicer, reg_grpc.RegistrationServicer):
    """A plugin that serves its API on a socket in the kubelet's directory."""

    def __init__(
        self, name: str, resource: str, described: Described, called: Callable[[Plain], None]
    ) -> None:
        self.name = name
        self._resource = resource
        self._described = described
        self._called = called
        self._lists: queue.SimpleQueue[dp.ListAndWatchResponse | None] = queue.SimpleQueue()
        self._server: grpc.Server | None = None
        self._handled: _Handled | None = None
        self._path = Path()
        self._ended = threading.Event()
        self._notified: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._stopped = False
        self._last: dp.ListAndWatchResponse | None = None
        self._counts_equal = False

    @property
    def closed(self) -> bool:
        return self._ended.is_set()

    def join(self, kubelet: MockKubelet) -> None:
        self._serve(kubelet, kubelet.plugin_dir / self.name)
        try:
            send_register(kubelet.plugin_socket, VERSION, self.name, self._resource)
        except Rejected:
            self._end()
            raise

    def watch(self, kubelet: MockKubelet) -> None:
        self._serve(kubelet, kubelet.plugins_registry_dir / self.name)
        if error := self._notified.get(timeout=_PATIENCE):
            self._end()
            raise Rejected("register", error)

    def _serve(self, kubelet: MockKubelet, path: Path) -> None:
        self._handled = handled_by(kubelet)
        self._counts_equal = "Q29" in kubelet.settings.quirks
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        server = grpc.server(ThreadPoolExecutor(8))
        dp_grpc.add_DevicePluginServicer_to_server(self, server)
        reg_grpc.add_RegistrationServicer_to_server(self, server)
        server.add_insecure_port(sockets.target(path))
        server.start()
        self._server = server

    def unwatch(self) -> None:
        handled = self._handled
        assert handled is not None
        before = handled.ends
        self._path.unlink(missing_ok=True)
        wait_for(lambda: handled.ends > before)
        # The kubelet has processed the end of the stream. It does not process a second end,
        # although this side may not have seen the cancellation yet.
        self._stopped = True
        self._end()

    def send(self, devices: Sequence[Described]) -> None:
        handled = self._handled
        assert handled is not None
        before, sent = handled.lists, dp.ListAndWatchResponse(devices=map(_device, devices))
        # Without quirks, the kubelet does not process a list that equals the previous one.
        is_new, self._last = self._counts_equal or sent != self._last, sent
        self._lists.put(sent)
        if is_new:
            wait_for(lambda: handled.lists > before or self.closed)

    def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        handled, was_open = self._handled, not self.closed
        before = handled.ends if handled else 0
        self._end()
        if handled and was_open:
            wait_for(lambda: handled.ends > before or handled.handler.is_closed)

    def _end(self) -> None:
        self._lists.put(None)
        if self._server is not None:
            self._server.stop(None).wait()

    # -- the API ---------------------------------------------------------------------

    def GetInfo(self, request: Any, context: grpc.ServicerContext) -> reg.PluginInfo:
        return reg.PluginInfo(type=DEVICE_PLUGIN, name=self._resource, supported_versions=[VERSION])

    def NotifyRegistrationStatus(
        self, request: reg.RegistrationStatus, context: grpc.ServicerContext
    ) -> reg.RegistrationStatusResponse:
        self._notified.put("" if request.plugin_registered else request.error)
        return reg.RegistrationStatusResponse()

    def GetDevicePluginOptions(
        self, request: Any, context: grpc.ServicerContext
    ) -> dp.DevicePluginOptions:
        return dp.DevicePluginOptions(
            pre_start_required=bool(self._described.get("pre_start")),
            get_preferred_allocation_available=bool(self._described.get("preferred")),
        )

    def ListAndWatch(
        self, request: Any, context: grpc.ServicerContext
    ) -> Iterator[dp.ListAndWatchResponse]:
        context.add_callback(self._ended.set)
        context.add_callback(lambda: self._lists.put(None))
        while (devices := self._lists.get()) is not None:
            yield devices

    def Allocate(
        self, request: dp.AllocateRequest, context: grpc.ServicerContext
    ) -> dp.AllocateResponse:
        described = self._described
        for container in request.container_requests:
            self._record(FakeCall(fakes.ALLOCATE, _ids(container.devices_ids)))
        self._fail(context, described.get("allocate_error"))
        if described.get("empty_reply"):
            return dp.AllocateResponse()
        response = dp.ContainerAllocateResponse.FromString(response_of(described))
        return dp.AllocateResponse(container_responses=[response])

    def GetPreferredAllocation(
        self, request: dp.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> dp.PreferredAllocationResponse:
        (asked,) = request.container_requests
        available = _ids(asked.available_deviceIDs)
        must = _ids(asked.must_include_deviceIDs)
        size = asked.allocation_size
        preferred = self._described.get("preferred", "")
        self._record(
            FakeCall(
                fakes.GET_PREFERRED_ALLOCATION, available=available, must_include=must, size=size
            )
        )
        self._fail(context, "no preference for you" if preferred == "error" else "")
        prefer = _preference(self._described) or PREFERENCES[preferred]
        assert prefer is not None, "the kubelet called what the plugin does not offer"
        chosen = prefer(available, must, size)
        return dp.PreferredAllocationResponse(
            container_responses=[dp.ContainerPreferredAllocationResponse(deviceIDs=chosen)]
        )

    def PreStartContainer(
        self, request: dp.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> dp.PreStartContainerResponse:
        self._record(FakeCall(fakes.PRE_START_CONTAINER, _ids(request.devices_ids)))
        self._fail(context, self._described.get("pre_start_error"))
        return dp.PreStartContainerResponse()

    def _record(self, call: FakeCall) -> None:
        self._called(plain_call(call) | {"resource": self._resource, "plugin": self.name})

    @staticmethod
    def _fail(context: grpc.ServicerContext, text: str | None) -> None:
        if text:
            context.abort(grpc.StatusCode.UNKNOWN, text)


class _Handled:
    """Counts the lists and stream ends that a kubelet has processed."""

    def __init__(self, kubelet: MockKubelet) -> None:
        self.lists = self.ends = 0
        self.handler = handler = kubelet.manager.plugins
        update, disconnect = handler.update, handler.disconnect
        lock = threading.Lock()

        def counted_update(*arguments: Any) -> None:
            update(*arguments)
            with lock:
                self.lists += 1

        def counted_disconnect(*arguments: Any) -> None:
            disconnect(*arguments)
            with lock:
                self.ends += 1

        handler.update = counted_update  # type: ignore[method-assign, assignment]
        handler.disconnect = counted_disconnect  # type: ignore[method-assign, assignment]


def wait_for(done: Callable[[], bool]) -> None:
    """Wait until the kubelet has processed an action of a plugin."""
    deadline = time.monotonic() + _PATIENCE
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("the mock kubelet did not process what a plugin sent")
        time.sleep(0.0005)


_COUNTED: Final = "_differential_handled"


def handled_by(kubelet: MockKubelet) -> _Handled:
    """Return the counters of a kubelet."""
    handler = kubelet.manager.plugins
    found = handler.__dict__.get(_COUNTED)
    if found is None:
        found = handler.__dict__[_COUNTED] = _Handled(kubelet)
    return found


def _ids(ids: Sequence[str]) -> tuple[DeviceId, ...]:
    return tuple(map(DeviceId, ids))


def _device(described: Described) -> dp.Device:
    numa = described.get("numa")
    topology = (
        None if numa is None else dp.TopologyInfo(nodes=[dp.NUMANode(ID=number) for number in numa])
    )
    return dp.Device(
        ID=described["id"], health=described.get("health", "Healthy"), topology=topology
    )


__all__ = ["MemoryPlugin", "Plugin", "Rejected", "RpcError", "SocketPlugin", "send_register"]

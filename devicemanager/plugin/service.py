"""The DevicePlugin service around an author's plugin.

Everything a kubelet may send is checked here, before the author's code sees it, and
everything the author answers is checked before it leaves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn, TypeVar

import grpc

from devicemanager.plugin import wire
from devicemanager.plugin.author import Plugin, offers
from devicemanager.plugin.errors import DeviceRejected, UnhealthyDevice, UnknownDevice
from devicemanager.plugin.hooks import call_hook, error_text
from devicemanager.plugin.settings import PluginSettings
from devicemanager.plugin.streams import Streams
from devicemanager.plugin.values import ContainerSettings
from protos import deviceplugin_v1beta1 as dp

__all__ = ["Service", "complete_preference"]

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Service:
    """The five RPCs. A subclass may answer with bytes instead of a message."""

    def __init__(self, plugin: Plugin, settings: PluginSettings, streams: Streams) -> None:
        self.plugin = plugin
        self.settings = settings
        self.streams = streams

    def options(self) -> dp.DevicePluginOptions:
        """The options: a plugin offers the calls that it overrides."""
        return dp.DevicePluginOptions(
            pre_start_required=offers(self.plugin, Plugin.pre_start_container),
            get_preferred_allocation_available=offers(self.plugin, Plugin.preferred_allocation),
        )

    def GetDevicePluginOptions(
        self, request: dp.Empty, context: grpc.ServicerContext
    ) -> dp.DevicePluginOptions | bytes:
        return self.options()

    def ListAndWatch(
        self, request: dp.Empty, context: grpc.ServicerContext
    ) -> Iterator[dp.ListAndWatchResponse | bytes]:
        stream = self.streams.open(context)
        devices = self.plugin.device_list
        sent: tuple[bytes, int] | None = None
        version = -1
        while (snapshot := devices.wait_newer(version, stream.ended)) is not None:
            version = snapshot.version
            if snapshot.mark != sent:
                sent = snapshot.mark
                yield snapshot.payload
                devices.pause(self.settings.list_interval, stream.ended)

    def Allocate(
        self, request: dp.AllocateRequest, context: grpc.ServicerContext
    ) -> dp.AllocateResponse | bytes:
        wanted = [_distinct(c.devices_ids) for c in request.container_requests]

        def allocate() -> dp.AllocateResponse:
            # All containers are checked before the author's code runs for any of them.
            for device_ids in wanted:
                self._check(device_ids, reject_unhealthy=self.settings.reject_unhealthy)
            return dp.AllocateResponse(container_responses=map(self._allocate, wanted))

        return _answer(context, "Allocate", allocate)

    def GetPreferredAllocation(
        self, request: dp.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> dp.PreferredAllocationResponse | bytes:
        if not offers(self.plugin, Plugin.preferred_allocation):
            _abort(context, "UNIMPLEMENTED", "this plugin has no preferred_allocation")
        return _answer(
            context,
            "GetPreferredAllocation",
            lambda: dp.PreferredAllocationResponse(
                container_responses=map(self._prefer, request.container_requests)
            ),
        )

    def PreStartContainer(
        self, request: dp.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> dp.PreStartContainerResponse | bytes:
        if not offers(self.plugin, Plugin.pre_start_container):
            _abort(context, "UNIMPLEMENTED", "this plugin has no pre_start_container")
        device_ids = _distinct(request.devices_ids)

        def prepare() -> dp.PreStartContainerResponse:
            # Health is left to the author: a reset may be just what mends the device.
            self._check(device_ids, reject_unhealthy=False)
            if device_ids:
                self.plugin.pre_start_container(device_ids)
            return dp.PreStartContainerResponse()

        return _answer(context, "PreStartContainer", prepare)

    def _check(self, device_ids: Iterable[str], *, reject_unhealthy: bool) -> None:
        devices = self.plugin.device_list.current.devices
        for device_id in device_ids:
            device = devices.get(device_id)
            if device is not None and (device.healthy or not reject_unhealthy):
                continue
            self.plugin.device_list.resend()
            if device is None:
                raise UnknownDevice(f"device {device_id} is not one of this plugin's")
            raise UnhealthyDevice(f"device {device_id} is unhealthy")

    def _allocate(self, device_ids: Sequence[str]) -> dp.ContainerAllocateResponse:
        answer = self.plugin.allocate(device_ids) if device_ids else None
        if answer is None:
            return dp.ContainerAllocateResponse()
        if not isinstance(answer, ContainerSettings):
            raise TypeError(f"allocate returned {answer!r}; it returns ContainerSettings or None")
        return wire.container_response(answer)

    def _prefer(
        self, request: dp.ContainerPreferredAllocationRequest
    ) -> dp.ContainerPreferredAllocationResponse:
        available = _distinct(request.available_deviceIDs)
        must_include = _distinct(request.must_include_deviceIDs)
        size = request.allocation_size
        chosen: Iterable[str] = ()
        if size > len(must_include):
            chosen = _ids(self.plugin.preferred_allocation(available, must_include, size))
        complete = complete_preference(chosen, available, must_include, size)
        return dp.ContainerPreferredAllocationResponse(deviceIDs=complete)

    def add_to(self, server: grpc.Server) -> None:
        """Register the handlers. Not the generated ones, since an answer may be bytes already."""
        unary: dict[str, Callable[[bytes], object]] = {
            "GetDevicePluginOptions": dp.Empty.FromString,
            "Allocate": dp.AllocateRequest.FromString,
            "GetPreferredAllocation": dp.PreferredAllocationRequest.FromString,
            "PreStartContainer": dp.PreStartContainerRequest.FromString,
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(getattr(self, name), parse, wire.to_bytes)
            for name, parse in unary.items()
        }
        handlers["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(
            self.ListAndWatch, dp.Empty.FromString, wire.to_bytes
        )
        generic = grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers)
        server.add_generic_rpc_handlers((generic,))


def complete_preference(
    chosen: Iterable[str], available: Sequence[str], must_include: Sequence[str], size: int
) -> list[str]:
    """What must be included, then what was chosen, then any others, up to ``size``.

    Without repetitions and without devices that are not available. Fewer than ``size`` if
    there are no more: one device that was unplugged must not reject every pod.
    """
    among = set(available)
    wanted = dict.fromkeys([*must_include, *chosen, *sorted(available)])
    return [device_id for device_id in wanted if device_id in among][: max(size, 0)]


def _ids(chosen: Iterable[str] | object) -> list[str]:
    """What preferred_allocation returned, if it is what it should be."""
    # A lone string would pass as a list of its letters.
    listed = list(chosen) if isinstance(chosen, Iterable) and not isinstance(chosen, str) else None
    if listed is None or not all(isinstance(device_id, str) for device_id in listed):
        raise TypeError(f"preferred_allocation returned {chosen!r}; it returns device ids")
    return listed


def _distinct(device_ids: Iterable[str]) -> tuple[str, ...]:
    # Sorted, since a kubelet takes them from unordered sets: same devices, same answer.
    return tuple(sorted(set(device_ids)))


def _abort(context: grpc.ServicerContext, code: str, text: str) -> NoReturn:
    context.abort(grpc.StatusCode[code], text)
    raise AssertionError("abort returned")


def _answer(context: grpc.ServicerContext, call: str, make: Callable[[], T]) -> T:
    """Make the answer; turn what the checks or the author's code raise into a status."""
    try:
        return call_hook(make)
    except DeviceRejected as rejection:
        _log.warning("%s rejected: %s", call, rejection)
        _abort(context, rejection.code, str(rejection))
    except Exception as error:
        _log.exception("%s failed in the plugin's own code", call)
        _abort(context, "UNKNOWN", error_text(error))

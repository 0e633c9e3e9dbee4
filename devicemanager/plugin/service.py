"""The DevicePlugin service around an author's plugin.

Requests are checked before the author's code runs, and its results before they are sent. So an
author never sees a device ID that is not in the newest list, and a kubelet never gets a malformed
response.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn, TypeVar

import grpc

from devicemanager.plugin import wire
from devicemanager.plugin.author import Plugin, offers
from devicemanager.plugin.common.hooks import call_hook, error_text
from devicemanager.plugin.errors import DeviceRejected, UnhealthyDevice, UnknownDevice
from devicemanager.plugin.settings import PluginSettings
from devicemanager.plugin.streams import Streams
from devicemanager.plugin.values import ContainerSettings
from protos import deviceplugin_v1beta1 as dp

__all__ = ["Service", "complete_preference"]

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Service:
    """The five RPCs. A subclass can return bytes instead of a message."""

    def __init__(self, plugin: Plugin, settings: PluginSettings, streams: Streams) -> None:
        self.plugin = plugin
        self.settings = settings
        self.streams = streams

    def options(self) -> dp.DevicePluginOptions:
        """Return the plugin's options: it offers the optional calls that it overrides."""
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
        devices = self.plugin._device_list
        sent: tuple[bytes, int] | None = None
        version = -1
        # A slow kubelet misses intermediate states on purpose: only the newest list counts.
        while (snapshot := devices.wait_newer(version, stream.ended)) is not None:
            version = snapshot.version
            if snapshot.mark != sent:
                sent = snapshot.mark
                yield snapshot.payload
                # Collect changes: a driver that reports each of 16 GPUs separately causes one list.
                devices.pause(self.settings.list_interval, stream.ended)

    def Allocate(
        self, request: dp.AllocateRequest, context: grpc.ServicerContext
    ) -> dp.AllocateResponse | bytes:
        requested = [_distinct(c.devices_ids) for c in request.container_requests]

        def allocate() -> dp.AllocateResponse:
            # Check all containers before the author's code runs for any of them.
            for device_ids in requested:
                self._check(device_ids, reject_unhealthy=self.settings.reject_unhealthy)
            return dp.AllocateResponse(container_responses=map(self._allocate, requested))

        return _respond(context, "Allocate", allocate)

    def GetPreferredAllocation(
        self, request: dp.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> dp.PreferredAllocationResponse | bytes:
        if not offers(self.plugin, Plugin.preferred_allocation):
            _abort(context, "UNIMPLEMENTED", "this plugin has no preferred_allocation")
        return _respond(
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
            # Unhealthy devices are allowed: a reset before the start can repair the device.
            self._check(device_ids, reject_unhealthy=False)
            if device_ids:
                self.plugin.pre_start_container(device_ids)
            return dp.PreStartContainerResponse()

        return _respond(context, "PreStartContainer", prepare)

    def _check(self, device_ids: Iterable[str], *, reject_unhealthy: bool) -> None:
        devices = self.plugin._device_list.current.devices
        for device_id in device_ids:
            device = devices.get(device_id)
            if device is not None and (device.healthy or not reject_unhealthy):
                continue
            # The kubelet works with an older list. Send the current one, so that it stops choosing
            # the device.
            self.plugin._device_list.resend()
            if device is None:
                raise UnknownDevice(f"unknown device {device_id}")
            raise UnhealthyDevice(f"device {device_id} is unhealthy")

    def _allocate(self, device_ids: Sequence[str]) -> dp.ContainerAllocateResponse:
        settings = self.plugin.allocate(device_ids) if device_ids else None
        if settings is None:
            return dp.ContainerAllocateResponse()
        if not isinstance(settings, ContainerSettings):
            raise TypeError(f"allocate returned {settings!r}: return ContainerSettings or None")
        return wire.container_response(settings)

    def _prefer(
        self, request: dp.ContainerPreferredAllocationRequest
    ) -> dp.ContainerPreferredAllocationResponse:
        available = _distinct(request.available_deviceIDs)
        must_include = _distinct(request.must_include_deviceIDs)
        size = request.allocation_size
        # If the required devices already are enough, there is nothing for the author to choose.
        chosen: Iterable[str] = ()
        if size > len(must_include):
            chosen = _ids(self.plugin.preferred_allocation(available, must_include, size))
        complete = complete_preference(chosen, available, must_include, size)
        return dp.ContainerPreferredAllocationResponse(deviceIDs=complete)

    def add_to(self, server: grpc.Server) -> None:
        """Add the handlers to a server.

        The generated function would not do: a response can be serialized already.
        """
        unary: dict[str, Callable[[bytes], object]] = {
            "GetDevicePluginOptions": dp.Empty.FromString,
            "Allocate": dp.AllocateRequest.FromString,
            "GetPreferredAllocation": dp.PreferredAllocationRequest.FromString,
            "PreStartContainer": dp.PreStartContainerRequest.FromString,
        }
        # Parse requests as usual, but pass responses through `to_bytes`.
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
    """Return ``size`` IDs: first those that must be included, then the chosen ones, then others.

    IDs are distinct and available. The result can be shorter: one unplugged device must not
    reject every pod.
    """
    usable = set(available)
    ordered = dict.fromkeys([*must_include, *chosen, *sorted(available)])
    return [device_id for device_id in ordered if device_id in usable][: max(size, 0)]


def _ids(chosen: Iterable[str] | object) -> list[str]:
    """Return the result of preferred_allocation as a list. Raises TypeError if it is invalid."""
    # A string would pass as a list of letters.
    listed = list(chosen) if isinstance(chosen, Iterable) and not isinstance(chosen, str) else None
    if listed is None or not all(isinstance(device_id, str) for device_id in listed):
        raise TypeError(f"preferred_allocation returned {chosen!r}: return a list of device IDs")
    return listed


def _distinct(device_ids: Iterable[str]) -> tuple[str, ...]:
    # Sorted: a kubelet takes them from unordered sets, and equal requests get equal responses.
    return tuple(sorted(set(device_ids)))


def _abort(context: grpc.ServicerContext, code: str, text: str) -> NoReturn:
    # `abort` raises; the second line is for the type checker.
    context.abort(grpc.StatusCode[code], text)
    raise AssertionError("abort returned")


def _respond(context: grpc.ServicerContext, call: str, respond: Callable[[], T]) -> T:
    """Return the response; turn an error of the checks or of the author's code into a status."""
    try:
        return call_hook(respond)
    except DeviceRejected as rejection:
        _log.warning("%s rejected: %s", call, rejection)
        _abort(context, rejection.code, str(rejection))
    except Exception as error:
        _log.exception("%s failed in the plugin's own code", call)
        _abort(context, "UNKNOWN", error_text(error))

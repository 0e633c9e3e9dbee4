"""DevicePlugin service that calls the methods of a plugin author's ``Plugin`` object.

The service checks each request before it calls the author's code. It checks each result before it
sends the result. So the author's code gets only device IDs of the newest list, and the kubelet gets
only well-formed responses.
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
    """DevicePlugin service with its five RPCs.

    A subclass can return serialized responses (bytes) instead of messages.
    """

    def __init__(self, plugin: Plugin, settings: PluginSettings, streams: Streams) -> None:
        self.plugin = plugin
        self.settings = settings
        self.streams = streams

    def options(self) -> dp.DevicePluginOptions:
        """Return the plugin's options. An option is True if the plugin overrides the optional
        method for which the option stands."""
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
        # A slow kubelet skips intermediate lists on purpose: only the newest list matters.
        while (snapshot := devices.wait_newer(version, stream.ended)) is not None:
            version = snapshot.version
            if snapshot.mark != sent:
                sent = snapshot.mark
                yield snapshot.payload
                # Combine changes: a driver that reports each of 16 GPUs separately causes one list.
                devices.pause(self.settings.list_interval, stream.ended)

    def Allocate(
        self, request: dp.AllocateRequest, context: grpc.ServicerContext
    ) -> dp.AllocateResponse | bytes:
        requested = [_distinct(c.devices_ids) for c in request.container_requests]

        def allocate() -> dp.AllocateResponse:
            # Check the devices of all containers before the author's code runs.
            for device_ids in requested:
                self._check(device_ids, reject_unhealthy=self.settings.reject_unhealthy)
            return dp.AllocateResponse(container_responses=map(self._allocate, requested))

        return _respond(context, "Allocate", allocate)

    def GetPreferredAllocation(
        self, request: dp.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> dp.PreferredAllocationResponse | bytes:
        if not offers(self.plugin, Plugin.preferred_allocation):
            _abort(context, "UNIMPLEMENTED", "this plugin does not implement preferred_allocation")
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
            _abort(context, "UNIMPLEMENTED", "this plugin does not implement pre_start_container")
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
            # The kubelet uses an older list. Send the current list, so that the kubelet no longer
            # allocates the device.
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
        # If the required devices are enough, the author's code has no device to choose.
        chosen: Iterable[str] = ()
        if size > len(must_include):
            chosen = _ids(self.plugin.preferred_allocation(available, must_include, size))
        complete = complete_preference(chosen, available, must_include, size)
        return dp.ContainerPreferredAllocationResponse(deviceIDs=complete)

    def add_to(self, server: grpc.Server) -> None:
        """Add the handlers of the five RPCs to a server.

        The function that gRPC generates for this cannot be used, because some responses are already
        serialized.
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
    """Return ``size`` available IDs: first ``must_include``, then ``chosen``, then any further IDs.

    The IDs are distinct. If fewer than ``size`` IDs are available, return all of them: an error
    would make the kubelet reject the pod.
    """
    usable = set(available)
    ordered = dict.fromkeys([*must_include, *chosen, *sorted(available)])
    return [device_id for device_id in ordered if device_id in usable][: max(size, 0)]


def _ids(chosen: Iterable[str] | object) -> list[str]:
    """Check the result of ``preferred_allocation`` and return it as a list.

    Raises TypeError if it is not a list of strings.
    """
    # A string would pass as a list of letters.
    listed = list(chosen) if isinstance(chosen, Iterable) and not isinstance(chosen, str) else None
    if listed is None or not all(isinstance(device_id, str) for device_id in listed):
        raise TypeError(f"preferred_allocation returned {chosen!r}: return a list of device IDs")
    return listed


def _distinct(device_ids: Iterable[str]) -> tuple[str, ...]:
    # Sort the IDs: the kubelet sends them in random order, and equal requests should have equal
    # responses.
    return tuple(sorted(set(device_ids)))


def _abort(context: grpc.ServicerContext, code: str, text: str) -> NoReturn:
    # `abort` raises; the second line is for the type checker.
    context.abort(grpc.StatusCode[code], text)
    raise AssertionError("unreachable: abort always raises")


def _respond(context: grpc.ServicerContext, call: str, respond: Callable[[], T]) -> T:
    """Return the result of ``respond``; abort the call with a gRPC status if it raises."""
    try:
        return call_hook(respond)
    except DeviceRejected as rejection:
        _log.warning("%s rejected: %s", call, rejection)
        _abort(context, rejection.code, str(rejection))
    except Exception as error:
        _log.exception("%s failed in the code of the plugin's author", call)
        _abort(context, "UNKNOWN", error_text(error))

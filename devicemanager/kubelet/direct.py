"""Requests to a plugin that no pod causes, with any devices: for authors who test handlers.

Each goes over a connection of its own and changes nothing of what the kubelet knows; it is
recorded like any other call.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import grpc
from google.protobuf.message import Message

from devicemanager.core.devices import Device
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.errors import RequestError, RpcError
from devicemanager.core.ids import ResourceName
from devicemanager.kubelet.arguments import device_ids
from devicemanager.kubelet.registration.connection import Calls, rpc_error
from devicemanager.kubelet.waiting import WaitTimeout
from devicemanager.kubelet.wire.lists import device_columns
from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc

if TYPE_CHECKING:
    from devicemanager.core.runoptions import ContainerSettings
    from devicemanager.events.calls.log import CallInProgress, CallLog
    from devicemanager.kubelet.directories import Directories
    from devicemanager.kubelet.protocols import Served
    from devicemanager.kubelet.settings import Settings

__all__ = ["DeviceLists", "DirectCalls"]

T = TypeVar("T")


class DirectCalls:
    """Direct requests to the plugin that serves a resource.

    All raise RpcError with the status if the plugin answers with one, or not within
    ``timeout`` seconds, and RequestError if no plugin is connected.
    """

    calls: CallLog
    settings: Settings
    _life: Served
    _directories: Directories

    def allocate(
        self,
        resource: str,
        ids: Iterable[str] | None = None,
        *,
        containers: Sequence[Iterable[str]] | None = None,
        timeout: float = 10.0,
    ) -> tuple[ContainerSettings, ...]:
        """Allocate for one container with these device ids, or for several, each with its
        own: ``containers=[{"gpu-0"}, {"gpu-1"}]``. The ids need not exist; lists and tuples go out
        in their order, anything else sorted.

        Returns the settings of each container response, as many as the plugin sent. Raises
        RpcError, RequestError, and WireError for a typed device of no known kind.
        """
        from devicemanager.kubelet.wire.settings import settings_from_message

        if (ids is None) == (containers is None):
            raise RequestError("give the device ids of one container, or containers=[…]")
        wanted = [ids or ()] if containers is None else containers
        request = dp.AllocateRequest(
            container_requests=[
                dp.ContainerAllocateRequest(devices_ids=device_ids(each)) for each in wanted
            ]
        )
        answer = self._ask(
            resource, dp_grpc.ALLOCATE, request, timeout, dp.AllocateResponse.FromString
        )
        return tuple(map(settings_from_message, answer.container_responses))

    def preferred(
        self,
        resource: str,
        available: Iterable[str],
        must_include: Iterable[str] = (),
        *,
        size: int,
        timeout: float = 10.0,
    ) -> tuple[tuple[str, ...], ...]:
        """GetPreferredAllocation for one container, whether the plugin offers it or not.

        Returns the ids of each container response, as many as the plugin sent and in its
        order. Raises RpcError and RequestError.
        """
        container = dp.ContainerPreferredAllocationRequest(
            available_deviceIDs=device_ids(available),
            must_include_deviceIDs=device_ids(must_include),
            allocation_size=size,
        )
        request = dp.PreferredAllocationRequest(container_requests=[container])
        answer = self._ask(
            resource,
            dp_grpc.GET_PREFERRED_ALLOCATION,
            request,
            timeout,
            dp.PreferredAllocationResponse.FromString,
        )
        return tuple(tuple(each.deviceIDs) for each in answer.container_responses)

    def pre_start(self, resource: str, ids: Iterable[str], *, timeout: float = 10.0) -> None:
        """PreStartContainer, whether the plugin asks for it or not. Raises RpcError and
        RequestError."""
        request = dp.PreStartContainerRequest(devices_ids=device_ids(ids))
        self._ask(
            resource,
            dp_grpc.PRE_START_CONTAINER,
            request,
            timeout,
            dp.PreStartContainerResponse.FromString,
        )

    def options(self, resource: str, *, timeout: float = 10.0) -> PluginOptions:
        """GetDevicePluginOptions: what the plugin says now. Raises RpcError and RequestError."""
        path, read = dp_grpc.GET_DEVICE_PLUGIN_OPTIONS, dp.DevicePluginOptions.FromString
        answer = self._ask(resource, path, dp.Empty(), timeout, read)
        return PluginOptions(answer.pre_start_required, answer.get_preferred_allocation_available)

    def watch(self, resource: str, *, timeout: float = 10.0) -> DeviceLists:
        """A second ListAndWatch stream, beside the kubelet's own: an iterator of the plugin's
        lists, which waits ``timeout`` seconds for each. Close it, or use it in a with block.

        Raises RequestError if no plugin is connected.
        """
        channel, calls = self._connect(resource)
        return DeviceLists(resource, channel, calls.begin(dp_grpc.LIST_AND_WATCH, b""), timeout)

    def _ask(
        self,
        resource: str,
        path: str,
        request: Message,
        timeout: float,
        read: Callable[[bytes], T],
    ) -> T:
        channel, calls = self._connect(resource)
        with channel:
            return calls.make(path, request.SerializeToString(), timeout, read)

    def _connect(self, resource: str) -> tuple[grpc.Channel, Calls]:
        state = self._life.serving().manager.state
        with state.lock:
            endpoint = state.endpoints.serving(ResourceName(resource))
            is_there = endpoint is not None and state.endpoints.is_connected(endpoint.id)
        if endpoint is None or not is_there:
            raise RequestError(f"no plugin of {resource} is connected: it has to register first")
        path = self._directories.plugin_dir / endpoint.name  # the watcher's are absolute
        channel = grpc.insecure_channel(sockets.target(path), _options(self.settings))
        return channel, Calls(channel, self.calls.recorder(resource, endpoint.name))


class DeviceLists(Iterator[tuple[Device, ...]]):
    """The lists of one ListAndWatch stream, each as the devices in the plugin's order.

    The iteration ends when the plugin ends the stream, or with ``close``. It raises RpcError
    if the stream fails, WireError for a message that is no list, and WaitTimeout if the next
    one does not come in time.
    """

    def __init__(
        self, resource: str, channel: grpc.Channel, call: CallInProgress | None, timeout: float
    ) -> None:
        self._resource = resource
        self._timeout = timeout
        self._call = call
        self._lists: queue.SimpleQueue[bytes | RpcError | None] = queue.SimpleQueue()
        self._channel = channel
        method: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(
            dp_grpc.LIST_AND_WATCH
        )
        self._stream = method(b"")
        self._closed = False
        self._thread = threading.Thread(target=self._read, name="watch", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        end = RpcError("OK", "")
        try:
            for message in self._stream:
                if self._call is not None:
                    self._call.received_message(message)
                self._lists.put(message)
            self._lists.put(None)
        except grpc.RpcError as error:
            end = rpc_error(error)
            self._lists.put(None if self._closed else end)
        finally:
            if self._call is not None:
                self._call.failed(end.code, end.description)

    def __next__(self) -> tuple[Device, ...]:
        if self._closed:
            raise StopIteration
        try:
            message = self._lists.get(timeout=self._timeout)
        except queue.Empty:
            raise WaitTimeout(
                f"waited {self._timeout:g} s for the next list of {self._resource}"
            ) from None
        if isinstance(message, bytes):
            columns = device_columns(message)
            return tuple(map(Device, columns.ids, columns.health, columns.numa))
        self.close()
        if message is None:
            raise StopIteration
        raise message

    def close(self) -> None:
        """End the stream. Closing twice does nothing."""
        self._closed = True
        self._stream.cancel()
        self._thread.join()
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _options(settings: Settings) -> list[tuple[str, int | str]]:
    return [
        *sockets.CHANNEL_OPTIONS,
        ("grpc.max_receive_message_length", settings.max_list_bytes),
    ]

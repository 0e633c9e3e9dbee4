"""Direct calls to a plugin without a pod, for tests of the plugin's RPC handlers.

The caller chooses the device IDs. Each call uses a separate connection, does not change the
kubelet's state, and is recorded in the call log like any other call.
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
from devicemanager.kubelet.waits import WaitTimeout
from devicemanager.kubelet.wire.lists import device_columns
from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc

if TYPE_CHECKING:
    from pathlib import Path

    from devicemanager.core.runoptions import ContainerSettings
    from devicemanager.events.calls.log import CallInProgress, CallLog
    from devicemanager.kubelet.lifecycle import Lifecycle

__all__ = ["DeviceLists", "DirectCalls"]

T = TypeVar("T")


class DirectCalls:
    """Methods with which a test calls the plugin of a resource without a pod.

    ``MockKubelet`` documents the methods.
    """

    def __init__(
        self, life: Lifecycle, plugin_dir: Path, calls: CallLog, max_list_bytes: int
    ) -> None:
        """``max_list_bytes`` is the size of the largest accepted response, in bytes."""
        self._life = life
        self._plugin_dir = plugin_dir
        self._calls = calls
        self._options: list[tuple[str, int | str]] = [
            *sockets.CHANNEL_OPTIONS,
            ("grpc.max_receive_message_length", max_list_bytes),
        ]

    def allocate(
        self,
        resource: str,
        ids: Iterable[str] | None,
        containers: Sequence[Iterable[str]] | None,
        timeout: float,
    ) -> tuple[ContainerSettings, ...]:
        """Call Allocate. Return one ``ContainerSettings`` for each container response."""
        # Not at the top: a start must not load the conversion of container settings.
        from devicemanager.kubelet.wire.settings import settings_from_message

        if (ids is None) == (containers is None):
            raise RequestError(
                "invalid arguments: use either ids (for one container) or containers, not both"
            )
        wanted = [ids or ()] if containers is None else containers
        request = dp.AllocateRequest(
            container_requests=[
                dp.ContainerAllocateRequest(devices_ids=device_ids(each)) for each in wanted
            ]
        )
        response = self._call(
            resource, dp_grpc.ALLOCATE, request, timeout, dp.AllocateResponse.FromString
        )
        return tuple(map(settings_from_message, response.container_responses))

    def preferred(
        self,
        resource: str,
        available: Iterable[str],
        must_include: Iterable[str],
        size: int,
        timeout: float,
    ) -> tuple[tuple[str, ...], ...]:
        """Call GetPreferredAllocation. Return a tuple of device IDs for each container response."""
        container = dp.ContainerPreferredAllocationRequest(
            available_deviceIDs=device_ids(available),
            must_include_deviceIDs=device_ids(must_include),
            allocation_size=size,
        )
        request = dp.PreferredAllocationRequest(container_requests=[container])
        response = self._call(
            resource,
            dp_grpc.GET_PREFERRED_ALLOCATION,
            request,
            timeout,
            dp.PreferredAllocationResponse.FromString,
        )
        return tuple(tuple(each.deviceIDs) for each in response.container_responses)

    def pre_start(self, resource: str, ids: Iterable[str], timeout: float) -> None:
        """Call PreStartContainer with these device IDs."""
        request = dp.PreStartContainerRequest(devices_ids=device_ids(ids))
        self._call(
            resource,
            dp_grpc.PRE_START_CONTAINER,
            request,
            timeout,
            dp.PreStartContainerResponse.FromString,
        )

    def options(self, resource: str, timeout: float) -> PluginOptions:
        """Call GetDevicePluginOptions and return the plugin's options."""
        path, read = dp_grpc.GET_DEVICE_PLUGIN_OPTIONS, dp.DevicePluginOptions.FromString
        response = self._call(resource, path, dp.Empty(), timeout, read)
        return PluginOptions(
            response.pre_start_required, response.get_preferred_allocation_available
        )

    def watch(self, resource: str, timeout: float) -> DeviceLists:
        """Open a ListAndWatch stream. Return an iterator of the plugin's device lists."""
        channel, calls = self._connect(resource)
        return DeviceLists(resource, channel, calls.begin(dp_grpc.LIST_AND_WATCH, b""), timeout)

    def _call(
        self,
        resource: str,
        path: str,
        request: Message,
        timeout: float,
        read: Callable[[bytes], T],
    ) -> T:
        channel, calls = self._connect(resource)
        # Closed after one call: the plugin must not see a second connection beside the kubelet's.
        with channel:
            return calls.make(path, request.SerializeToString(), timeout, read)

    def _connect(self, resource: str) -> tuple[grpc.Channel, Calls]:
        state = self._life.serving().manager.state
        # The lock covers only the lookup, never a call.
        with state.lock:
            endpoint = state.endpoints.serving(ResourceName(resource))
            is_connected = endpoint is not None and state.endpoints.is_connected(endpoint.id)
        if endpoint is None or not is_connected:
            raise RequestError(
                f"no plugin of {resource} is connected: wait until it has registered"
            )
        path = self._plugin_dir / endpoint.name  # absolute for a plugin found by the watcher
        channel = grpc.insecure_channel(sockets.target(path), self._options)
        return channel, Calls(channel, self._calls.recorder(resource, endpoint.name))


class DeviceLists(Iterator[tuple[Device, ...]]):
    """Iterator of the device lists of one ListAndWatch stream, with devices in the plugin's order.

    The iteration stops when the plugin ends the stream or after ``close``. It raises RpcError
    if the stream fails, WireError for an invalid message, and WaitTimeout if the next list
    takes longer than the timeout. As a context manager it closes the stream.
    """

    def __init__(
        self, resource: str, channel: grpc.Channel, call: CallInProgress | None, timeout: float
    ) -> None:
        """Internal: open the stream and start the thread that reads it.

        ``MockKubelet.watch`` creates these objects.
        """
        self._resource = resource
        self._timeout = timeout
        self._call = call
        # A thread reads the stream, since gRPC's iterator blocks without a timeout. The queue has
        # lists, then None for the end of the stream or the error that ended it.
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
                f"waited {self._timeout:g} s for the next device list of {self._resource}"
            ) from None
        if isinstance(message, bytes):
            columns = device_columns(message)
            return tuple(map(Device, columns.ids, columns.health, columns.numa))
        # After this, each further call raises StopIteration instead of waiting for the timeout.
        self.close()
        if message is None:
            raise StopIteration
        raise message

    def close(self) -> None:
        """End the stream. Idempotent."""
        # Set before cancel: the reader must not report the cancellation as an error.
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

"""DevicePlugin service of a simulated plugin, which logs every call and applies faults.

Each call is logged. Then the faults are applied: a delay, an error, a wrong response, in this
order. A wrong response is made from the framework's correct response, because the framework would
repair a wrong response of the plugin.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator

import attrs
import grpc

from devicemanager.core.api.deviceplugin import HEALTHY, UNHEALTHY
from devicemanager.plugin import wire
from devicemanager.plugin.author import Plugin
from devicemanager.plugin.common.notifier import Notifier
from devicemanager.plugin.service import Service
from devicemanager.plugin.settings import PluginSettings
from devicemanager.plugin.simulated.faults import (
    GARBAGE,
    AllocateFault,
    Faults,
    ListFault,
    faulty_lists,
)
from devicemanager.plugin.simulated.settings import PreferredPolicy
from devicemanager.plugin.streams import Streams
from protos import deviceplugin_v1beta1 as dp

__all__ = ["CallLog", "RpcCall", "RpcRequest", "SimulatedService"]

_FLOOD_INTERVAL = 0.001
_MOST_BYTES = 64 << 20

RpcRequest = (
    dp.Empty | dp.AllocateRequest | dp.PreferredAllocationRequest | dp.PreStartContainerRequest
)
"""Request message of the DevicePlugin API."""


@attrs.frozen
class RpcCall:
    """RPC of the kubelet to the plugin: its name and request."""

    rpc: str
    request: RpcRequest

    @property
    def device_ids(self) -> tuple[tuple[str, ...], ...]:
        """Device IDs in an Allocate or PreStartContainer request, one tuple per container.

        Empty for other RPCs.
        """
        if isinstance(self.request, dp.AllocateRequest):
            return tuple(tuple(c.devices_ids) for c in self.request.container_requests)
        if isinstance(self.request, dp.PreStartContainerRequest):
            return (tuple(self.request.devices_ids),)
        return ()


class CallLog:
    """Log of all calls to a plugin, oldest first. It continues when the plugin starts a new server.
    Thread-safe.

    At most the last ``limit`` calls, with at most 64 MiB of requests, are stored. A plugin can run
    for a long time, and one request can name 100,000 devices. All calls are counted.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # Guards all fields below.
        self._lock = threading.Lock()
        self._calls: deque[RpcCall] = deque()
        self._bytes = 0
        self._dropped = 0
        self._counts: Counter[str] = Counter()
        self._arrived = Notifier()

    @property
    def calls(self) -> tuple[RpcCall, ...]:
        with self._lock:
            return tuple(self._calls)

    @property
    def dropped(self) -> int:
        """Number of earlier calls that are no longer stored."""
        with self._lock:
            return self._dropped

    def add(self, call: RpcCall) -> None:
        with self._lock:
            self._calls.append(call)
            self._counts[call.rpc] += 1
            self._bytes += call.request.ByteSize()
            # Remove the oldest calls until both limits hold; this can even remove the new call.
            while self._calls and (len(self._calls) > self._limit or self._bytes > _MOST_BYTES):
                self._bytes -= self._calls.popleft().request.ByteSize()
                self._dropped += 1
        # Notify outside the lock, because a waiter's condition reads the counts.
        self._arrived.notify()

    def wait_for(self, rpc: str, count: int, timeout: float) -> bool:
        """Wait until ``rpc`` has been called ``count`` times; return False after ``timeout`` s."""
        return self._arrived.wait_for(lambda: self._counts[rpc] >= count, timeout)


class SimulatedService(Service):
    """DevicePlugin service that logs calls and applies faults."""

    def __init__(
        self,
        plugin: Plugin,
        settings: PluginSettings,
        streams: Streams,
        *,
        call_log: CallLog,
        faults: Faults,
        policy: PreferredPolicy,
    ) -> None:
        super().__init__(plugin, settings, streams)
        self._call_log = call_log
        self._faults = faults
        self._policy = policy

    def GetDevicePluginOptions(
        self, request: dp.Empty, context: grpc.ServicerContext
    ) -> dp.DevicePluginOptions | bytes:
        self._arrive("GetDevicePluginOptions", request, context)
        return super().GetDevicePluginOptions(request, context)

    def ListAndWatch(
        self, request: dp.Empty, context: grpc.ServicerContext
    ) -> Iterator[dp.ListAndWatchResponse | bytes]:
        # This method is a generator, so this line runs when gRPC reads the first list.
        fault = self._arrive("ListAndWatch", request, context).lists
        lists = super().ListAndWatch(request, context)
        if fault is ListFault.NONE:
            yield from lists
        elif fault is ListFault.SILENT:
            _wait(context, None)
        elif fault is ListFault.FLOOD:
            yield from self._flood(lists, context)
        else:
            # Every list is changed, so the fault also applies to later lists.
            for payload in lists:
                yield from faulty_lists(fault, wire.to_bytes(payload))
                if fault is ListFault.CLOSE:
                    return
                if fault is ListFault.ABORT:
                    context.abort(grpc.StatusCode.INTERNAL, "simulated end of the stream")

    def Allocate(
        self, request: dp.AllocateRequest, context: grpc.ServicerContext
    ) -> dp.AllocateResponse | bytes:
        fault = self._arrive("Allocate", request, context).allocate
        # The framework checks the request, so an invalid request fails even with a fault.
        response = dp.AllocateResponse.FromString(wire.to_bytes(super().Allocate(request, context)))
        match fault:
            case AllocateFault.NO_RESPONSES:
                response.Clear()
            case AllocateFault.EXTRA_RESPONSE:
                response.container_responses.add()
            # The wait ends when the kubelet's deadline has passed, so no thread hangs forever.
            case AllocateFault.HANG:
                _wait(context, None)
            case AllocateFault.GARBAGE:
                return GARBAGE
        return response

    def GetPreferredAllocation(
        self, request: dp.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> dp.PreferredAllocationResponse | bytes:
        self._arrive("GetPreferredAllocation", request, context)
        response = dp.PreferredAllocationResponse.FromString(
            wire.to_bytes(super().GetPreferredAllocation(request, context))
        )
        # Apply faults after the framework, which repairs wrong responses.
        for container in response.container_responses:
            if self._policy is PreferredPolicy.SHORT and container.deviceIDs:
                container.deviceIDs.pop()
            elif self._policy is PreferredPolicy.GARBAGE:
                container.deviceIDs[:] = [f"not-a-device-{i}" for i in range(3)]
        return response

    def PreStartContainer(
        self, request: dp.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> dp.PreStartContainerResponse | bytes:
        self._arrive("PreStartContainer", request, context)
        return super().PreStartContainer(request, context)

    def _arrive(self, rpc: str, request: RpcRequest, context: grpc.ServicerContext) -> Faults:
        """Log a call, then apply its delay and error. Return the faults at the call's arrival.

        Once a test sees the call in the log, it can set the faults of the next call.
        """
        # Copy the faults before the call is logged.
        faults = self._faults.copy()
        self._call_log.add(RpcCall(rpc, request))
        delay = faults.delays.get(rpc)
        if delay:
            _wait(context, delay)
        error = faults.errors.get(rpc)
        if error is not None:
            context.abort(grpc.StatusCode[error.code], error.text)
        return faults

    def _flood(
        self, lists: Iterator[dp.ListAndWatchResponse | bytes], context: grpc.ServicerContext
    ) -> Iterator[dp.ListAndWatchResponse]:
        message = dp.ListAndWatchResponse.FromString(wire.to_bytes(next(lists)))
        pace = threading.Event()
        while context.is_active():
            yield message
            # Change the health of one device, so that each list differs from the previous list.
            for device in message.devices[-1:]:
                healthy = device.health == HEALTHY
                device.health = UNHEALTHY if healthy else HEALTHY
            pace.wait(_FLOOD_INTERVAL)


def _wait(context: grpc.ServicerContext, seconds: float | None) -> None:
    """Wait for ``seconds`` (None: forever), or until the RPC ends at the caller's side."""
    gone = threading.Event()
    # add_callback returns False if the RPC has already ended.
    if context.add_callback(gone.set):
        gone.wait(seconds)

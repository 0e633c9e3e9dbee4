"""Calls to a plugin that no kubelet would make, or not at that moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc

from devicemanager.conformance.outcomes import Failed
from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc

__all__ = ["CallFailed", "ListStream", "PluginClient", "rejection"]

_SECONDS = 30.0
_ON_ITS_WAY_SECONDS = 0.02
_OPTIONS = (*sockets.CHANNEL_OPTIONS, ("grpc.max_receive_message_length", -1))


class CallFailed(Exception):
    """A call that the plugin did not answer with a message."""

    def __init__(self, rpc: str, error: grpc.RpcError) -> None:
        known = isinstance(error, grpc.Call)
        self.code = error.code().name if known else "UNKNOWN"
        self.details = (error.details() or "") if known else str(error)
        super().__init__(f"{rpc} ended with {self.code}: {self.details}")

    @property
    def is_lost(self) -> bool:
        """Whether nobody answered, as opposed to an answer that is an error."""
        return self.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")


def rejection(call: Callable[[], object], what: str = "") -> CallFailed | None:
    """Make a call that the plugin may reject. Returns the error that it answered with, None if
    it took the call; raises Failed, with ``what`` before the reason, if nobody answered."""
    try:
        call()
    except CallFailed as error:
        if error.is_lost:
            raise Failed(f"{what}: {error}" if what else str(error)) from None
        return error
    return None


def _lost(text: str) -> CallFailed:
    return CallFailed("ListAndWatch", grpc.RpcError(text))


class ListStream:
    """An open ListAndWatch stream; ``close`` cancels it."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def next(self, seconds: float = _SECONDS) -> dp.ListAndWatchResponse:
        """The next list. Raises CallFailed when the stream ends, and when nothing comes: the
        stream is cancelled then."""
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            self._call.cancel()

        timer = threading.Timer(seconds, give_up)
        timer.start()
        try:
            message: dp.ListAndWatchResponse = next(self._call)
        except StopIteration:
            raise _lost("the plugin ended it") from None
        except grpc.RpcError as error:
            if is_late.is_set():
                raise _lost(f"no list came within {seconds:g} s") from None
            raise CallFailed("ListAndWatch", error) from None
        finally:
            timer.cancel()
        return message

    def close(self) -> None:
        """Cancel the stream."""
        self._call.cancel()


class PluginClient:
    """A connection of its own to a plugin's socket."""

    def __init__(self, path: Path) -> None:
        self._channel = grpc.insecure_channel(sockets.target(path), _OPTIONS)
        self._stub = dp_grpc.DevicePluginStub(self._channel)

    def options(self, seconds: float = _SECONDS) -> dp.DevicePluginOptions:
        """GetDevicePluginOptions. Raises CallFailed, as all calls do."""
        options: dp.DevicePluginOptions = self._call("GetDevicePluginOptions", dp.Empty(), seconds)
        return options

    def allocate(
        self, *containers: Iterable[str], seconds: float = _SECONDS
    ) -> dp.AllocateResponse:
        """Allocate with the device ids of each container."""
        requests = [dp.ContainerAllocateRequest(devices_ids=list(ids)) for ids in containers]
        message = dp.AllocateRequest(container_requests=requests)
        answer: dp.AllocateResponse = self._call("Allocate", message, seconds)
        return answer

    def abandon_allocate(self, ids: Iterable[str]) -> None:
        """Send Allocate and close the connection while the plugin works on it, or has just
        answered."""
        request = dp.ContainerAllocateRequest(devices_ids=list(ids))
        call = self._stub.Allocate.future(dp.AllocateRequest(container_requests=[request]))
        time.sleep(_ON_ITS_WAY_SECONDS)
        call.cancel()
        self.close()

    def preferred(
        self, *containers: tuple[Sequence[str], Sequence[str], int], seconds: float = _SECONDS
    ) -> list[list[str]]:
        """GetPreferredAllocation with (available, must include, size) of each container."""
        requests = [
            dp.ContainerPreferredAllocationRequest(
                available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
            )
            for available, must, size in containers
        ]
        message = dp.PreferredAllocationRequest(container_requests=requests)
        answer = self._call("GetPreferredAllocation", message, seconds)
        return [list(each.deviceIDs) for each in answer.container_responses]

    def pre_start(self, ids: Iterable[str], seconds: float = _SECONDS) -> None:
        """PreStartContainer."""
        message = dp.PreStartContainerRequest(devices_ids=list(ids))
        self._call("PreStartContainer", message, seconds)

    def watch(self) -> closing[ListStream]:
        """Another ListAndWatch stream, for a with block, at whose end it is cancelled."""
        return closing(ListStream(self._stub.ListAndWatch(dp.Empty())))

    def raw(self, method: str, request: bytes, seconds: float = _SECONDS) -> bytes:
        """Any method, such as ``/v1beta1.DevicePlugin/Allocate``, with any bytes."""
        call = self._channel.unary_unary(
            method, request_serializer=bytes, response_deserializer=bytes
        )
        try:
            return bytes(call(request, timeout=seconds))
        except grpc.RpcError as error:
            raise CallFailed(method.rpartition("/")[2], error) from None

    def close(self) -> None:
        """Close the connection; streams on it end."""
        self._channel.close()

    def _call(self, rpc: str, request: Any, seconds: float) -> Any:
        try:
            return getattr(self._stub, rpc)(request, timeout=seconds, wait_for_ready=True)
        except grpc.RpcError as error:
            raise CallFailed(rpc, error) from None

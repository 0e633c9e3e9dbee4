"""Client that calls a plugin directly, to make calls that a kubelet would not make."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from devicemanager.conformance.outcomes import Failed
from devicemanager.core.printable import listed
from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc

__all__ = ["CallFailed", "ListStream", "PluginClient", "rejection"]

_SECONDS = 30.0
_SHOWN_IDS, _SHOWN_CHARACTERS = 8, 200
# Long enough for the request to arrive, and short enough for most plugins to still work on it.
_IN_FLIGHT_SECONDS = 0.02
# No limit for received device lists: check W10 reports lists that are too large for a kubelet.
_OPTIONS = (*sockets.CHANNEL_OPTIONS, ("grpc.max_receive_message_length", -1))


class CallFailed(Exception):
    """Error of a call to the plugin. ``code`` is the name of the gRPC status code."""

    def __init__(self, rpc: str, error: grpc.RpcError) -> None:
        # An RpcError that this package creates, for example for a stream that has ended, has no
        # status.
        has_status = isinstance(error, grpc.Call)
        self.code = error.code().name if has_status else "UNKNOWN"
        self.details = (error.details() or "") if has_status else str(error)
        super().__init__(f"{rpc} failed with {self.code}: {self.details}")

    @property
    def is_lost(self) -> bool:
        """True if the plugin did not respond at all, not even with an error."""
        # These codes are set by the client. A plugin that rejects a call uses another code.
        return self.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")


def rejection(call: Callable[[], object], what: str = "") -> CallFailed | None:
    """Run ``call``, a function that makes one call to the plugin. Return the plugin's error, or
    None if the call succeeded.

    Raises Failed if the plugin did not respond. The error text begins with ``what``.
    """
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
    """An open ListAndWatch stream of a plugin."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def next(self, seconds: float = _SECONDS) -> dp.ListAndWatchResponse:
        """Wait for the next device list and return it.

        Raises CallFailed if the stream ends or after ``seconds``. The timeout cancels the stream.
        """
        # In gRPC, a stream has one deadline for all its messages. So each message gets a timer
        # instead.
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            self._call.cancel()

        timer = threading.Timer(seconds, give_up)
        timer.daemon = True
        timer.start()
        try:
            message: dp.ListAndWatchResponse = next(self._call)
        except StopIteration:
            raise _lost("the plugin ended the stream") from None
        except grpc.RpcError as error:
            if is_late.is_set():
                raise _lost(f"no device list within {seconds:g} s") from None
            raise CallFailed("ListAndWatch", error) from None
        finally:
            # Otherwise the timer would cancel the stream during a later wait.
            timer.cancel()
        return message

    def close(self) -> None:
        """Cancel the stream."""
        self._call.cancel()


class PluginClient:
    """Connection to a plugin's socket, with one method per call. Each method raises CallFailed if
    the call fails.

    ``on_call`` gets a line of text about each call that has ended, except streams.
    """

    def __init__(self, path: Path, on_call: Callable[[str], object] = lambda text: None) -> None:
        self._on_call = on_call
        self._channel = grpc.insecure_channel(sockets.target(path), _OPTIONS)
        self._stub = dp_grpc.DevicePluginStub(self._channel)

    def options(self, seconds: float = _SECONDS) -> dp.DevicePluginOptions:
        """Call GetDevicePluginOptions and return the options."""
        options: dp.DevicePluginOptions = self._call("GetDevicePluginOptions", dp.Empty(), seconds)
        return options

    def allocate(
        self, *containers: Iterable[str], seconds: float = _SECONDS
    ) -> dp.AllocateResponse:
        """Call Allocate and return the response. Each argument has the device IDs of one
        container."""
        requests = [dp.ContainerAllocateRequest(devices_ids=list(ids)) for ids in containers]
        message = dp.AllocateRequest(container_requests=requests)
        response: dp.AllocateResponse = self._call(
            "Allocate", message, seconds, [id_ for each in requests for id_ in each.devices_ids]
        )
        return response

    def abandon_allocate(self, ids: Iterable[str]) -> None:
        """Call Allocate, and close the connection while the plugin handles the call."""
        # A call that is cancelled before the connection exists never reaches the plugin.
        with contextlib.suppress(grpc.FutureTimeoutError):
            grpc.channel_ready_future(self._channel).result(_SECONDS)
        request = dp.ContainerAllocateRequest(devices_ids=list(ids))
        call = self._stub.Allocate.future(dp.AllocateRequest(container_requests=[request]))
        time.sleep(_IN_FLIGHT_SECONDS)
        call.cancel()
        self.close()

    def preferred(
        self, *containers: tuple[Sequence[str], Sequence[str], int], seconds: float = _SECONDS
    ) -> list[list[str]]:
        """Call GetPreferredAllocation and return the preferred IDs of each container.

        Each argument is a tuple for one container: the available IDs, the IDs that must be
        included, and the number of devices.
        """
        requests = [
            dp.ContainerPreferredAllocationRequest(
                available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
            )
            for available, must, size in containers
        ]
        message = dp.PreferredAllocationRequest(container_requests=requests)
        ids = [id_ for available, _, _ in containers for id_ in available]
        response = self._call("GetPreferredAllocation", message, seconds, ids)
        return [list(each.deviceIDs) for each in response.container_responses]

    def pre_start(self, ids: Iterable[str], seconds: float = _SECONDS) -> None:
        """Call PreStartContainer for these device IDs."""
        message = dp.PreStartContainerRequest(devices_ids=list(ids))
        self._call("PreStartContainer", message, seconds, message.devices_ids)

    def watch(self) -> closing[ListStream]:
        """Open a ListAndWatch stream for use in a with block. The end of the block cancels the
        stream."""
        return closing(ListStream(self._stub.ListAndWatch(dp.Empty())))

    def raw(self, method: str, request: bytes, seconds: float = _SECONDS) -> bytes:
        """Call a method given by its path, such as ``/v1beta1.DevicePlugin/Allocate``, and return
        the response bytes. ``request`` need not be a valid message."""
        call = self._channel.unary_unary(
            method, request_serializer=bytes, response_deserializer=bytes
        )
        rpc = method.rpartition("/")[2]
        return bytes(self._made(rpc, method, partial(call, request, timeout=seconds)))

    def close(self) -> None:
        """Close the connection and all its streams."""
        self._channel.close()

    def _call(self, rpc: str, request: Any, seconds: float, ids: Sequence[str] = ()) -> Any:
        # Wait for the connection: a plugin that has just registered may not accept it yet.
        call = partial(getattr(self._stub, rpc), request, timeout=seconds, wait_for_ready=True)
        return self._made(rpc, f"{rpc} {listed(ids, _SHOWN_IDS)}".rstrip(), call)

    def _made(self, rpc: str, what: str, call: Callable[[], Any]) -> Any:
        """Make a call and return its response. ``what`` names it in the line for ``on_call``."""
        begin, outcome = time.monotonic(), "OK"
        try:
            return call()
        except grpc.RpcError as error:
            failed = CallFailed(rpc, error)
            outcome = f"{failed.code}: {failed.details[:_SHOWN_CHARACTERS]}"
            raise failed from None
        finally:
            self._on_call(f"call {what}: {outcome} after {time.monotonic() - begin:.3f} s")

"""The connection to one plugin: its list stream and the calls to it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import grpc

from devicemanager.core.allocation.selection import AllocateAnswer
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.errors import RpcError
from devicemanager.core.ids import DeviceId
from devicemanager.core.inventory import Columns
from devicemanager.events.calls.call import OK
from devicemanager.events.calls.log import CallInProgress, CallRecorder
from devicemanager.kubelet.registration.fault_injection import PluginFaults
from devicemanager.kubelet.registration.rpc import Calls, rpc_error
from devicemanager.kubelet.settings import Settings
from devicemanager.kubelet.wire.errors import WireError
from devicemanager.kubelet.wire.lists import ListReader
from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc

OnList = Callable[[Columns], None]
OnEnd = Callable[[str], None]
OnError = Callable[[BaseException], None]

_JOIN_SECONDS = 10.0


class Connection:
    """A connection to one plugin. ``close`` ends everything.

    Each registration has a connection of its own, also when two lead to one socket: a
    registration is identified by its connection (Q1).

    A plugin costs one thread, which asks for its options and reads its lists. gRPC would take
    a second one for each channel, but for calls that are made and waited for by the same
    thread.
    """

    def __init__(
        self,
        path: Path,
        settings: Settings,
        tap: CallRecorder | None = None,
        faults: PluginFaults | None = None,
    ) -> None:
        """``tap`` records what is asked and answered; ``faults`` are those to be shown."""
        self.path = path
        self._channel = grpc.insecure_channel(sockets.target(path), _channel_options(settings))
        self._settings = settings
        self._faults = faults
        self._calls = Calls(self._channel, tap, faults)
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], None]) -> None:
        """Do ``work`` on the connection's own thread, once. Raises RuntimeError if there is no
        thread to be had."""
        name = f"list-{self.path.name}"
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        self._thread = thread

    def options(self) -> PluginOptions:
        """GetDevicePluginOptions. Raises ``RpcError``."""
        options = self._calls.make(
            dp_grpc.GET_DEVICE_PLUGIN_OPTIONS,
            b"",
            self._settings.options_timeout,
            dp.DevicePluginOptions.FromString,
        )
        return PluginOptions(options.pre_start_required, options.get_preferred_allocation_available)

    # -- the list stream -------------------------------------------------------------

    def watch(self, on_list: OnList, on_end: OnEnd, on_error: OnError) -> None:
        """Open ListAndWatch and read it to its end. ``on_list`` is called for every
        message that differs from the one before, then ``on_end`` once with the cause.
        ``on_error`` gets what the other two raise: a bug of ours, or of a callback.
        """
        try:
            cause = self._follow(on_list)
        except BaseException as error:
            on_error(error)
            cause = f"a bug of the device manager: {error!r}"
        try:
            on_end(cause)
        except BaseException as error:
            on_error(error)

    def _follow(self, on_list: OnList) -> str:
        """Read the stream until it ends; returns why it did."""
        try:
            # Bytes, not messages: a list equal to the last one is no change.
            method: grpc.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(
                dp_grpc.LIST_AND_WATCH
            )
            stream = method(b"")
        except ValueError:
            return "the connection was closed"
        call = self._calls.begin(dp_grpc.LIST_AND_WATCH, b"")
        end = RpcError("Canceled", "the kubelet gave the stream up")
        try:
            self._read(stream, on_list, call)
            end = RpcError(OK, "")
        except WireError as error:
            end = RpcError("Internal", str(error))
            return str(error)
        except grpc.RpcError as error:
            end = rpc_error(error)
            return self._cause(end)
        finally:
            if call is not None:
                call.failed(end.code, end.description)
            self._channel.close()
            # grpc keeps the socket of a call of which anything has not been read.
            with contextlib.suppress(grpc.RpcError):
                for _ in stream:
                    pass
            stream.initial_metadata()
        return "the plugin ended it"

    @staticmethod
    def _read(stream: Iterable[bytes], on_list: OnList, call: CallInProgress | None) -> None:
        last: bytes | None = None
        reader = ListReader()
        for message in stream:
            if call is not None:
                call.received_message(message)
            if message != last:
                on_list(reader.read(message))
                last = message

    def _cause(self, error: RpcError) -> str:
        if error.code == "ResourceExhausted":
            limit = self._settings.max_list_bytes
            return (
                f"a list is larger than {limit} bytes ({error.description}): report fewer "
                "devices or shorter ids, or raise Settings.max_list_bytes"
            )
        return str(error)

    def list_came(self) -> None:
        """Wait as long as a fault holds up the reading of lists."""
        if self._faults is not None:
            self._faults.list_came()

    # -- calls -----------------------------------------------------------------------

    def allocate(self, device_ids: tuple[DeviceId, ...]) -> AllocateAnswer:
        """Allocate for one container; responses stay bytes, as the checkpoint keeps them."""
        request = dp.AllocateRequest()
        request.container_requests.add(devices_ids=device_ids)
        response = self._calls.make(
            dp_grpc.ALLOCATE,
            request.SerializeToString(),
            self._settings.allocate_timeout,
            dp.AllocateResponse.FromString,
        )
        return AllocateAnswer(
            tuple(
                [
                    each.SerializeToString(deterministic=True)
                    for each in response.container_responses
                ]
            )
        )

    def preferred_allocation(
        self, available: tuple[DeviceId, ...], must_include: tuple[DeviceId, ...], size: int
    ) -> tuple[DeviceId, ...]:
        """GetPreferredAllocation for one container; empty if the plugin answers nothing."""
        wanted = dp.ContainerPreferredAllocationRequest(
            available_deviceIDs=available,
            must_include_deviceIDs=must_include,
            allocation_size=size,
        )
        response = self._calls.make(
            dp_grpc.GET_PREFERRED_ALLOCATION,
            dp.PreferredAllocationRequest(container_requests=[wanted]).SerializeToString(),
            self._settings.preferred_allocation_timeout,
            dp.PreferredAllocationResponse.FromString,
        )
        answers = response.container_responses
        return tuple(map(DeviceId, answers[0].deviceIDs)) if answers else ()

    def pre_start_container(self, device_ids: tuple[DeviceId, ...]) -> None:
        """PreStartContainer. Raises ``RpcError``."""
        self._calls.make(
            dp_grpc.PRE_START_CONTAINER,
            dp.PreStartContainerRequest(devices_ids=device_ids).SerializeToString(),
            self._settings.pre_start_timeout,
            dp.PreStartContainerResponse.FromString,
        )

    # -- end -------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection; calls under way fail and the connection's thread ends."""
        self._channel.close()
        if self._faults is not None:
            self._faults.closed()

    def join(self) -> None:
        """Wait for the connection's thread, at most 10 s; from that thread itself not at all."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)


def _channel_options(settings: Settings) -> list[tuple[str, int | str]]:
    # gRPC itself loads this with the first channel.
    from grpc.experimental import ChannelOptions

    return [
        # Each registration is a connection.
        *sockets.CHANNEL_OPTIONS,
        # Lists are read by the thread that waits for them, without a second one of gRPC's.
        (ChannelOptions.SingleThreadedUnaryStream, 1),
        ("grpc.max_receive_message_length", settings.max_list_bytes),
        # Not grpc.min_reconnect_backoff_ms: that is how long a plugin may take to greet.
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 500),
    ]

"""The connection to one plugin: its list stream and the calls to it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError

from devicemanager.core.allocation.selection import AllocateAnswer
from devicemanager.core.api.codes import go_name
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.errors import InjectedError, RpcError
from devicemanager.core.ids import DeviceId
from devicemanager.core.inventory import Columns
from devicemanager.events.calls.call import OK
from devicemanager.events.calls.log import CallInProgress, CallRecorder
from devicemanager.kubelet.registration.fault_injection import PluginFaults
from devicemanager.kubelet.settings import Settings
from devicemanager.kubelet.wire.errors import WireError
from devicemanager.kubelet.wire.lists import ListReader
from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc

T = TypeVar("T")

_GRPC_ERRORS = (grpc.RpcError, grpc.FutureCancelledError, ValueError)
_GIVEN_UP = RpcError("Canceled", "the kubelet gave the call up")


def rpc_error(error: grpc.RpcError) -> RpcError:
    """The status that a failed call carries, as Go prints it."""
    code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
    details = (error.details() or "") if isinstance(error, grpc.Call) else str(error)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and "Deadline Exceeded" in details:
        details = "context deadline exceeded"  # ours, not the plugin's: as Go's library says it
    return RpcError(go_name(code.name), details)


def translated(error: grpc.RpcError | grpc.FutureCancelledError | ValueError) -> RpcError:
    """What grpc raises for a call that failed, one on a closed channel among it."""
    if isinstance(error, grpc.RpcError):
        return rpc_error(error)
    # grpc raises ValueError for a call on a channel that was closed.
    return RpcError("Canceled", "grpc: the client connection is closing")


class Calls:
    """Calls on one channel. Messages go in and out as bytes, as the record keeps them.

    Without a recorder nothing is recorded.
    """

    def __init__(
        self,
        channel: grpc.Channel,
        recorder: CallRecorder | None,
        faults: PluginFaults | None = None,
    ) -> None:
        self._channel = channel
        self._recorder = recorder
        self._faults = faults
        self._methods: dict[str, grpc.UnaryUnaryMultiCallable[bytes, bytes]] = {}

    def make(
        self, path: str, request: bytes, timeout: float | None, read: Callable[[bytes], T]
    ) -> T:
        """Make a call and wait for its answer, with ``timeout`` None for ever. ``path`` is the
        method's, ``read`` makes the answer of its bytes. Raises ``RpcError``."""
        method = self._method(path)
        call = self.begin(path, request)
        try:
            if self._faults is None or not self._faults.registry.armed:
                response = method(request, timeout=timeout)
            else:
                with self._faults.around(_name(path), call, self._channel.close):
                    response = method(request, timeout=timeout)
        except _GRPC_ERRORS as error:
            raise _failed(call, translated(error)) from error
        except InjectedError as error:
            raise _failed(call, error) from None
        except BaseException:
            _failed(call, _GIVEN_UP)
            raise
        return _answer(response, read, call)

    async def wait_for(
        self, path: str, request: bytes, timeout: float | None, read: Callable[[bytes], T]
    ) -> T:
        """The same on the running event loop, without faults; a task that is cancelled cancels
        the call."""
        method = self._method(path)
        call = self.begin(path, request)
        future = None
        try:
            future = method.future(request, timeout=timeout)
            response = await _result_of(future)
        except _GRPC_ERRORS as error:
            raise _failed(call, translated(error)) from error
        except BaseException:
            _failed(call, _GIVEN_UP)
            raise
        finally:
            if future is not None:
                future.cancel()
        return _answer(response, read, call)

    def begin(self, path: str, request: bytes) -> CallInProgress | None:
        """Record the beginning of a call that somebody else makes."""
        return None if self._recorder is None else self._recorder.begin(_name(path), request)

    def _method(self, path: str) -> grpc.UnaryUnaryMultiCallable[bytes, bytes]:
        method = self._methods.get(path)
        if method is None:
            method = self._methods[path] = self._channel.unary_unary(path)
        return method


@cache
def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _answer(response: bytes, read: Callable[[bytes], T], call: CallInProgress | None) -> T:
    try:
        answer = read(response)
    except (DecodeError, UnicodeDecodeError) as error:
        failed = RpcError("Internal", "Exception deserializing response!")
        raise _failed(call, failed, response) from error
    if call is not None:
        call.answered(response)
    return answer


def _failed(
    call: CallInProgress | None, error: RpcError, response: bytes | None = None
) -> RpcError:
    if call is not None:
        call.failed(error.code, error.description, response)
    return error


async def _result_of(call: grpc.Future[bytes]) -> bytes:
    """Wait for a call's end on the running event loop. Raises what the call does."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def wake() -> None:
        if not done.done():
            done.set_result(None)

    def finish(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(wake)

    call.add_done_callback(finish)
    await done
    return call.result()


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
        recorder: CallRecorder | None = None,
        faults: PluginFaults | None = None,
    ) -> None:
        """``recorder`` records what is asked and answered; ``faults`` are those to be shown."""
        self.path = path
        self._channel = grpc.insecure_channel(sockets.target(path), _channel_options(settings))
        self._settings = settings
        self._faults = faults
        self._calls = Calls(self._channel, recorder, faults)
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

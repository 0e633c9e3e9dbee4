"""The connection to one plugin: calls to it, and its ListAndWatch stream.

Theory of operation. ``Calls`` makes unary calls on a channel. It records each of them, runs
injected faults around it, and turns gRPC's exceptions into ``RpcError`` with the status as Go
prints it. No gRPC type leaves this module.

``Connection`` adds what the manager needs of a plugin. It has one thread (``run``), which
requests the options and then reads the ListAndWatch stream. By default gRPC starts another thread
for every channel with an open stream. The option SingleThreadedUnaryStream avoids that: the thread
that iterates over the stream does the work.

A ListAndWatch stream ends when the plugin ends it, when the connection breaks or is closed, or
when a message is invalid or too large. ``_follow`` returns the reason as one line. Afterwards it
reads the rest of the stream, since gRPC keeps the socket of a call whose result was never read.

``close`` may be called by any thread at any time: calls in flight fail with Canceled, the
stream ends, and so does the thread. ``join`` waits for the thread, for up to 10 seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError

from devicemanager.core import messages
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

# gRPC raises ValueError for a call on a channel that is closed, and the channel of a plugin can be
# closed at any moment.
_GRPC_ERRORS = (grpc.RpcError, grpc.FutureCancelledError, ValueError)
_NOT_CONNECTED = re.compile(r"connect failed: addr: unix:(?P<path>.+) error: (?P<error>.+)")
_ABANDONED = RpcError("Canceled", "the kubelet abandoned the call")


def rpc_error(error: grpc.RpcError) -> RpcError:
    """Convert a failed call's status, with the code as Go prints it."""
    code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
    details = (error.details() or "") if isinstance(error, grpc.Call) else str(error)
    # gRPC's Python library has its own text. A plugin that fails with the same code keeps its text.
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and "Deadline Exceeded" in details:
        details = "context deadline exceeded"  # our own deadline: Go's text for it
    elif code is grpc.StatusCode.UNAVAILABLE and (found := _NOT_CONNECTED.search(details)):
        details = messages.NOT_CONNECTED.format(path=found["path"], error=found["error"].lower())
    return RpcError(go_name(code.name), details)


def from_grpc(error: grpc.RpcError | grpc.FutureCancelledError | ValueError) -> RpcError:
    """Convert an exception of gRPC, including one for a closed channel."""
    if isinstance(error, grpc.RpcError):
        return rpc_error(error)
    # gRPC raises ValueError for a call on a closed channel.
    return RpcError("Canceled", "grpc: the client connection is closing")


class Calls:
    """Unary calls on one channel.

    Requests and responses are bytes, as the call log stores them. Without a recorder nothing is
    recorded.
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
        """Make a call and wait for its response; None means no timeout.

        ``path`` is the method's path, ``read`` decodes the response. Raises ``RpcError``.
        """
        method = self._method(path)
        call = self.begin(path, request)
        try:
            # The usual case costs one attribute: every admission makes calls.
            if self._faults is None or not self._faults.registry.armed:
                response = method(request, timeout=timeout)
            else:
                with self._faults.around(_name(path), call, self._channel.close):
                    response = method(request, timeout=timeout)
        except _GRPC_ERRORS as error:
            raise _failed(call, from_grpc(error)) from error
        except InjectedError as error:
            raise _failed(call, error) from None
        except BaseException:
            _failed(call, _ABANDONED)
            raise
        return _answer(response, read, call)

    async def wait_for(
        self, path: str, request: bytes, timeout: float | None, read: Callable[[bytes], T]
    ) -> T:
        """Make a call on the running event loop, without faults. Cancelling the task cancels
        the call."""
        method = self._method(path)
        call = self.begin(path, request)
        future = None
        try:
            future = method.future(request, timeout=timeout)
            response = await _result_of(future)
        except _GRPC_ERRORS as error:
            raise _failed(call, from_grpc(error)) from error
        except BaseException:
            _failed(call, _ABANDONED)
            raise
        finally:
            if future is not None:
                future.cancel()
        return _answer(response, read, call)

    def begin(self, path: str, request: bytes) -> CallInProgress | None:
        """Record the start of a call that the caller makes itself."""
        return None if self._recorder is None else self._recorder.begin(_name(path), request)

    def _method(self, path: str) -> grpc.UnaryUnaryMultiCallable[bytes, bytes]:
        # A callable per call would be slow to create, so each is created once.
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
    """Wait for the end of a call on the running event loop. Raises what the call raises."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def wake() -> None:
        if not done.done():
            done.set_result(None)

    def finish(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits
            loop.call_soon_threadsafe(wake)

    call.add_done_callback(finish)
    await done
    return call.result()


OnList = Callable[[Columns], None]
OnEnd = Callable[[str], None]
OnError = Callable[[BaseException], None]

_JOIN_SECONDS = 10.0


class Connection:
    """A connection to one plugin. Implements ``manager.state.Endpoint``.

    Every registration has its own connection, also if two lead to the same socket: a
    registration is identified by its connection (Q1).
    """

    def __init__(
        self,
        path: Path,
        settings: Settings,
        recorder: CallRecorder | None = None,
        faults: PluginFaults | None = None,
    ) -> None:
        """``recorder`` records all calls; ``faults`` are injected faults."""
        self.path = path
        self._channel = grpc.insecure_channel(sockets.target(path), _channel_options(settings))
        self._settings = settings
        self._faults = faults
        self._calls = Calls(self._channel, recorder, faults)
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], None]) -> None:
        """Run ``work`` on the connection's own thread, once. Raises RuntimeError if no thread
        can be started."""
        name = f"list-{self.path.name}"
        # A daemon: a plugin that never ends its stream must not keep the interpreter alive.
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        self._thread = thread

    def options(self) -> PluginOptions:
        """Call GetDevicePluginOptions. Raises ``RpcError``."""
        options = self._calls.make(
            dp_grpc.GET_DEVICE_PLUGIN_OPTIONS,
            b"",
            self._settings.options_timeout,
            dp.DevicePluginOptions.FromString,
        )
        return PluginOptions(options.pre_start_required, options.get_preferred_allocation_available)

    # -- the ListAndWatch stream -------------------------------------------------------------

    def watch(self, on_list: OnList, on_end: OnEnd, on_error: OnError) -> None:
        """Open ListAndWatch and read it to its end.

        Calls ``on_list`` for every message that differs from the previous one, then ``on_end``
        once with the cause. ``on_error`` gets exceptions of the other two: bugs of
        devicemanager or of a callback.
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
        """Read the stream until it ends; return the reason."""
        try:
            # Bytes, not messages: equal bytes need no decoding.
            method: grpc.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(
                dp_grpc.LIST_AND_WATCH
            )
            stream = method(b"")
        # The channel was closed between the registration and this call.
        except ValueError:
            return "the connection was closed"
        call = self._calls.begin(dp_grpc.LIST_AND_WATCH, b"")
        end = RpcError("Canceled", "the kubelet closed the stream")
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
            # gRPC keeps the socket of a call that was not read to its end.
            with contextlib.suppress(grpc.RpcError):
                for _ in stream:
                    pass
            stream.initial_metadata()
        return "the plugin ended it"

    @staticmethod
    def _read(stream: Iterable[bytes], on_list: OnList, call: CallInProgress | None) -> None:
        last: bytes | None = None
        # One reader per stream: it reuses the columns of the list before.
        reader = ListReader()
        for message in stream:
            if call is not None:
                call.received_message(message)
            # Bytes are compared first: plugins repeat their list periodically, and equal ones cost
            # nothing.
            if message != last:
                on_list(reader.read(message))
                last = message

    def _cause(self, error: RpcError) -> str:
        # gRPC's text names its own option; the user needs the name of the setting.
        if error.code == "ResourceExhausted":
            limit = self._settings.max_list_bytes
            return (
                f"a list is larger than {limit} bytes ({error.description}): report fewer "
                "devices or shorter ids, or raise Settings.max_list_bytes"
            )
        return str(error)

    def list_arrived(self) -> None:
        """Wait for as long as an injected fault delays the reading of lists."""
        if self._faults is not None:
            self._faults.list_arrived()

    # -- calls -----------------------------------------------------------------------

    def allocate(self, device_ids: tuple[DeviceId, ...]) -> AllocateAnswer:
        """Call Allocate for one container; responses stay bytes, as the checkpoint stores them."""
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
                    # Deterministic, so that equal responses make equal checkpoints.
                    each.SerializeToString(deterministic=True)
                    for each in response.container_responses
                ]
            )
        )

    def preferred_allocation(
        self, available: tuple[DeviceId, ...], must_include: tuple[DeviceId, ...], size: int
    ) -> tuple[DeviceId, ...]:
        """Call GetPreferredAllocation for one container; empty if the response has no
        containers."""
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
        """Call PreStartContainer. Raises ``RpcError``."""
        self._calls.make(
            dp_grpc.PRE_START_CONTAINER,
            dp.PreStartContainerRequest(devices_ids=device_ids).SerializeToString(),
            self._settings.pre_start_timeout,
            dp.PreStartContainerResponse.FromString,
        )

    # -- end -------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection; calls in flight fail and the connection's thread ends."""
        self._channel.close()
        if self._faults is not None:
            self._faults.closed()

    def join(self) -> None:
        """Wait up to 10 s for the connection's thread, unless called on that thread."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)


def _channel_options(settings: Settings) -> list[tuple[str, int | str]]:
    # Imported here: gRPC itself loads this only with its first channel.
    from grpc.experimental import ChannelOptions

    return [
        # A connection per registration, not one shared by all channels to a socket.
        *sockets.CHANNEL_OPTIONS,
        # Lists are read by the thread that waits for them, without a second thread of gRPC.
        (ChannelOptions.SingleThreadedUnaryStream, 1),
        ("grpc.max_receive_message_length", settings.max_list_bytes),
        # Not grpc.min_reconnect_backoff_ms: that is how long a plugin may take for the handshake.
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 500),
    ]

"""The connection to one plugin: calls to it, and its ListAndWatch stream.

Theory of operation. ``Calls`` makes unary calls on a channel. It records each call, applies
injected faults, and converts gRPC's exceptions to ``RpcError`` with the status as Go prints it.
Other modules see no gRPC types.

``Connection`` makes the device manager's calls to one plugin. It has one thread (``run``), which
calls GetDevicePluginOptions and then reads the ListAndWatch stream. By default gRPC starts another
thread for every channel with an open stream. The channel option SingleThreadedUnaryStream prevents
this: the connection's thread receives the messages itself.

A ListAndWatch stream ends when the plugin ends it, when the connection breaks or is closed, or
when a message is invalid or too large. ``_follow`` reads the remaining messages, because gRPC keeps
the socket of a call that was not read to its end. Then it returns the reason as one line.

Any thread may call ``close`` at any time: calls in flight fail with Canceled, and the stream and
the connection's thread end. ``join`` waits for the thread, for up to 10 seconds.
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

# gRPC raises ValueError for a call on a closed channel, and channels can be closed at any moment.
_GRPC_ERRORS = (grpc.RpcError, grpc.FutureCancelledError, ValueError)
# The texts of gRPC with and without its event engine.
_NOT_CONNECTED = (
    r"connect failed: addr: unix:(?P<path>.+) error: (?P<error>.+)",
    r"unix:(?P<path>.+): connect: (?P<error>.+?)(?: \(\d+\))?$",
)
_ABANDONED = RpcError("Canceled", "the kubelet abandoned the call")


def rpc_error(error: grpc.RpcError) -> RpcError:
    """Convert the error of a failed call to an RpcError, with the status code as Go prints it."""
    code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
    details = (error.details() or "") if isinstance(error, grpc.Call) else str(error)
    # For a timeout of this kubelet, gRPC's Python library has another text than Go. The text of a
    # plugin that fails with the same code does not change.
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and "Deadline Exceeded" in details:
        details = "context deadline exceeded"
    elif code is grpc.StatusCode.UNAVAILABLE:
        details = not_connected(details)
    return RpcError(go_name(code.name), details)


def not_connected(details: str) -> str:
    """Return the kubelet's error text if gRPC reports that no process listens on a socket.

    Returns any other error text (``details``) unchanged.
    """
    for pattern in _NOT_CONNECTED:
        if found := re.search(pattern, details):
            error = found["error"].lower()
            return messages.NOT_CONNECTED.format(path=found["path"], error=error)
    return details


def from_grpc(error: grpc.RpcError | grpc.FutureCancelledError | ValueError) -> RpcError:
    """Convert an exception of gRPC to an RpcError.

    A ValueError (the channel is closed) or a cancelled future becomes an RpcError with the code
    Canceled.
    """
    if isinstance(error, grpc.RpcError):
        return rpc_error(error)
    # gRPC raises ValueError for a call on a closed channel.
    return RpcError("Canceled", "grpc: the client connection is closing")


class Calls:
    """Caller of unary RPCs on one channel. A recorder writes each call to the call log.

    Requests and responses are bytes, as the call log stores them. Without a recorder, calls are
    not recorded.
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
        self,
        path: str,
        request: bytes,
        timeout: float | None,
        read: Callable[[bytes], T],
        begun: Callable[[Callable[[], object]], None] | None = None,
    ) -> T:
        """Make a call, wait for its response, and return the response decoded by ``read``.

        ``path`` is the gRPC path of the method. ``timeout`` is in seconds; None means no timeout.
        When the call has begun, ``begun`` is called with a function that cancels the call. Raises
        ``RpcError`` if the call fails or its response cannot be decoded.
        """
        method = self._method(path) if begun is None else self._cancellable(path, begun)
        call = self.begin(path, request)
        try:
            # The usual case, without faults, must be fast: every admission makes calls.
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
        """Make a call without blocking the event loop. Return the response decoded by ``read``.

        ``path`` is the gRPC path of the method. ``timeout`` is in seconds; None means no timeout.
        Injected faults do not affect the call. If the calling task is canceled, the call is
        canceled, too. Raises ``RpcError`` if the call fails or its response cannot be decoded.
        """
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
        """Record that the caller starts a call. Return the record of this call; None if calls are
        not recorded."""
        return None if self._recorder is None else self._recorder.begin(_name(path), request)

    def _cancellable(
        self, path: str, begun: Callable[[Callable[[], object]], None]
    ) -> Callable[..., bytes]:
        method = self._method(path)

        def make(request: bytes, timeout: float | None) -> bytes:
            future = method.future(request, timeout=timeout)
            begun(future.cancel)
            return future.result()

        return make

    def _method(self, path: str) -> grpc.UnaryUnaryMultiCallable[bytes, bytes]:
        # The callable of a method is slow to create, so it is created once.
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
    except RpcError as error:
        raise _failed(call, error, response) from None
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
    """Wait for a call on the running event loop, and return its response.

    Errors of the call are raised.
    """
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
    """Connection of one registration to its plugin; implements ``manager.state.Endpoint``.

    Every registration has its own connection, even if two registrations have the same socket.
    Otherwise the late end of an old connection would unregister a newer plugin, a known bug of the
    kubelet (quirk Q1).
    """

    def __init__(
        self,
        path: Path,
        settings: Settings,
        recorder: CallRecorder | None = None,
        faults: PluginFaults | None = None,
    ) -> None:
        """``recorder`` records all calls; ``faults`` applies injected faults to them."""
        self.path = path
        self._channel = grpc.insecure_channel(sockets.target(path), _channel_options(settings))
        self._settings = settings
        self._faults = faults
        self._calls = Calls(self._channel, recorder, faults)
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], None]) -> None:
        """Start the connection's thread, which calls ``work``. Call this method only once.

        Raises RuntimeError if no thread can be started.
        """
        name = f"list-{self.path.name}"
        # A daemon: a plugin that never ends its stream must not keep the interpreter alive.
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        self._thread = thread

    def options(self) -> PluginOptions:
        """Call GetDevicePluginOptions and return the options. Raises ``RpcError`` if it fails."""
        options = self._calls.make(
            dp_grpc.GET_DEVICE_PLUGIN_OPTIONS,
            b"",
            self._settings.options_timeout,
            dp.DevicePluginOptions.FromString,
        )
        return PluginOptions(options.pre_start_required, options.get_preferred_allocation_available)

    # -- the ListAndWatch stream -------------------------------------------------------------

    def watch(self, on_list: OnList, on_end: OnEnd, on_error: OnError) -> None:
        """Open the ListAndWatch stream and read it to its end.

        ``on_list`` is called for every device list that differs from the previous list. With the
        kubelet bug (quirk) Q24 or Q29, ``on_list`` is called for every list. At the end, ``on_end``
        is called once with the cause. ``on_error`` is called with unexpected exceptions, which are
        bugs of devicemanager or of a callback.
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
        """Read the ListAndWatch stream until it ends; return the reason as one line."""
        try:
            # Messages are read as bytes, because equal messages need no decoding.
            method: grpc.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(
                dp_grpc.LIST_AND_WATCH
            )
            stream = method(b"")
        # The channel was closed after the registration and before this call.
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
            # Read the remaining messages: gRPC keeps the socket of a call that is not read.
            with contextlib.suppress(grpc.RpcError):
                for _ in stream:
                    pass
            stream.initial_metadata()
        return "the plugin ended it"

    def _read(self, stream: Iterable[bytes], on_list: OnList, call: CallInProgress | None) -> None:
        # With these quirks an equal list has an effect: the checkpoint is written, or the list
        # replaces that of another plugin.
        reads_all = not self._settings.quirks.isdisjoint(("Q24", "Q29"))
        last: bytes | None = None
        # The reader reuses the columns of the previous list.
        reader = ListReader()
        for message in stream:
            if call is not None:
                call.received_message(message)
            # Bytes are compared first, because plugins repeat their list periodically.
            if message != last or reads_all:
                on_list(reader.read(message))
                last = message

    def _cause(self, error: RpcError) -> str:
        # gRPC's text has the name of its own option. Add the name of the setting.
        if error.code == "ResourceExhausted":
            limit = self._settings.max_list_bytes
            return (
                f"a list is larger than {limit} bytes ({error.description}): report fewer "
                "devices or shorter ids, or raise Settings.max_list_bytes"
            )
        return str(error)

    def list_arrived(self) -> None:
        """Wait while an injected fault delays the reading of a received device list."""
        if self._faults is not None:
            self._faults.list_arrived()

    # -- calls -----------------------------------------------------------------------

    def allocate(self, device_ids: tuple[DeviceId, ...]) -> AllocateAnswer:
        """Call Allocate for one container. Return each entry of ``container_responses`` as bytes.

        A correct plugin returns exactly one entry, which the checkpoint stores. Raises
        ``RpcError`` if the call fails.
        """
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
                    # Deterministic, so that equal responses result in equal checkpoints.
                    each.SerializeToString(deterministic=True)
                    for each in response.container_responses
                ]
            )
        )

    def preferred_allocation(
        self, available: tuple[DeviceId, ...], must_include: tuple[DeviceId, ...], size: int
    ) -> tuple[DeviceId, ...]:
        """Call GetPreferredAllocation for one container, and return the preferred device IDs.

        Returns no IDs if the field ``container_responses`` is empty. Raises ``RpcError`` if the
        call fails.
        """
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
        """Call PreStartContainer for one container. Raises ``RpcError`` if it fails."""
        self._calls.make(
            dp_grpc.PRE_START_CONTAINER,
            dp.PreStartContainerRequest(devices_ids=device_ids).SerializeToString(),
            self._settings.pre_start_timeout,
            dp.PreStartContainerResponse.FromString,
        )

    # -- end -------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection: calls in flight fail, and the connection's thread ends."""
        self._channel.close()
        if self._faults is not None:
            self._faults.closed()

    def join(self) -> None:
        """Wait up to 10 s for the connection's thread to end; do nothing if called on that
        thread."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)


def _channel_options(settings: Settings) -> list[tuple[str, int | str]]:
    # Imported here, because gRPC itself imports this module only with its first channel.
    from grpc.experimental import ChannelOptions

    return [
        # Every registration has a connection; by default gRPC shares one for the same socket.
        *sockets.CHANNEL_OPTIONS,
        # The thread that waits for lists also reads them, without a second thread of gRPC.
        (ChannelOptions.SingleThreadedUnaryStream, 1),
        ("grpc.max_receive_message_length", settings.max_list_bytes),
        # grpc.min_reconnect_backoff_ms is not set: it also limits the time of the handshake.
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 500),
    ]

"""One plugin's endpoint: the connection to it, its list stream and the calls to it.

grpc's errors stop here: inwards go ``RpcError`` with the status as Go prints it, and
``DialError``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc

from devicemanager.core.allocation.selection import AllocateAnswer
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.errors import PluginError, RpcError
from devicemanager.core.ids import DeviceId
from devicemanager.core.inventory import Columns
from devicemanager.io.retry import retry
from devicemanager.settings import Settings
from devicemanager.wire.errors import WireError
from devicemanager.wire.lists import ListReader
from podresources import sockets
from podresources.errors import SocketPathError
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc

OnList = Callable[[Columns], None]
OnEnd = Callable[[str], None]
OnError = Callable[[Exception], None]

_JOIN_SECONDS = 10.0
_SLICE = 0.1
_FIRST_WAIT, _LONGEST_WAIT = 0.005, 0.5


class DialError(PluginError):
    """Nobody answered on the plugin's socket in time."""


def go_code(code: grpc.StatusCode) -> str:
    """A status code's name as grpc-go prints it: ``DeadlineExceeded``, ``Canceled``."""
    if code is grpc.StatusCode.CANCELLED:
        return "Canceled"
    if code is grpc.StatusCode.OK:
        return "OK"
    return "".join(part.capitalize() for part in code.name.split("_"))


def rpc_error(error: grpc.RpcError) -> RpcError:
    """The status that a failed call carries, as Go prints it."""
    code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
    details = error.details() if isinstance(error, grpc.Call) else str(error)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and "Deadline Exceeded" in (details or ""):
        details = "context deadline exceeded"  # ours, not the plugin's: as Go's library says it
    return RpcError(go_code(code), details or "")


class Connection:
    """A connection to one plugin. Made by ``dial``; ``close`` ends everything.

    Each endpoint has a connection of its own, also when two lead to one socket: a
    registration is identified by its connection (Q1).
    """

    def __init__(self, path: Path, channel: grpc.Channel, settings: Settings) -> None:
        self.path = path
        self._channel = channel
        self._settings = settings
        self._stub = dp_grpc.DevicePluginStub(channel)
        self._thread: threading.Thread | None = None
        # Guards the two below.
        self._lock = threading.Lock()
        self._stream: grpc.Call | None = None
        self._closing = False

    @classmethod
    def dial(
        cls, path: Path, settings: Settings, stopping: threading.Event | None = None
    ) -> Connection:
        """Connect within ``settings.dial_timeout`` seconds, or raise ``DialError``.

        ``stopping`` ends the attempts early. A failed attempt leaves nothing open (Q3).
        """
        try:
            sockets.check_path(path)
        except SocketPathError as error:
            raise DialError(str(error)) from error
        stopping = stopping or threading.Event()
        limit = time.monotonic() + settings.dial_timeout
        return retry(
            lambda: cls._attempt(path, settings, limit, stopping),
            DialError,
            sleep=stopping.wait,
            first_wait=_FIRST_WAIT,
            longest_wait=_LONGEST_WAIT,
            seconds=settings.dial_timeout,
            stopping=stopping.is_set,
            jitter=True,
        )

    @classmethod
    def _attempt(
        cls, path: Path, settings: Settings, limit: float, stopping: threading.Event
    ) -> Connection:
        if not path.exists():
            raise DialError(f"no such socket: {path}")
        channel = grpc.insecure_channel(sockets.target(path), _channel_options(settings))
        try:
            _wait_ready(channel, limit, stopping)
        except grpc.FutureTimeoutError:
            channel.close()
            raise DialError(f"context deadline exceeded: nobody serves {path}") from None
        except BaseException:
            channel.close()
            raise
        return cls(path, channel, settings)

    def options(self) -> PluginOptions:
        """GetDevicePluginOptions. Raises ``RpcError``."""
        try:
            options = self._stub.GetDevicePluginOptions(
                dp.Empty(), timeout=self._settings.options_timeout
            )
        except (grpc.RpcError, ValueError) as error:
            raise _translated(error) from error
        return PluginOptions(options.pre_start_required, options.get_preferred_allocation_available)

    # -- the list stream -------------------------------------------------------------

    def watch(self, on_list: OnList, on_end: OnEnd, on_error: OnError) -> None:
        """Open ListAndWatch on a thread of its own. ``on_list`` is called for every
        message that differs from the one before, then ``on_end`` once with the cause.
        ``on_error`` gets what the other two raise: a bug of ours."""
        self._thread = threading.Thread(
            target=self._run,
            args=(on_list, on_end, on_error),
            name=f"list-{self.path.name}",
            daemon=True,
        )
        self._thread.start()

    def _run(self, on_list: OnList, on_end: OnEnd, on_error: OnError) -> None:
        try:
            cause = self._follow(on_list)
        except Exception as error:
            on_error(error)
            cause = f"a bug of the device manager: {error!r}"
        try:
            on_end(cause)
        except Exception as error:
            on_error(error)
        finally:
            self._channel.close()

    def _follow(self, on_list: OnList) -> str:
        """Read the stream until it ends; returns why it did."""
        last: bytes | None = None
        reader = ListReader()
        try:
            # Bytes, not messages: a list equal to the last one is no change.
            call: grpc.UnaryStreamMultiCallable[dp.Empty, bytes] = self._channel.unary_stream(
                dp_grpc.LIST_AND_WATCH, request_serializer=dp.Empty.SerializeToString
            )
            stream = call(dp.Empty())
        except ValueError:
            return "the connection was closed"
        with self._lock:
            self._stream = stream
            if self._closing:
                stream.cancel()
        try:
            for message in stream:
                if message != last:
                    on_list(reader.read(message))
                    last = message
        except WireError as error:
            return str(error)
        except grpc.RpcError as error:
            return self._cause(rpc_error(error))
        finally:
            stream.cancel()
        return "the plugin ended it"

    def _cause(self, error: RpcError) -> str:
        if error.code == "ResourceExhausted":
            limit = self._settings.max_list_bytes
            return (
                f"a list is larger than {limit} bytes ({error.description}): report fewer "
                "devices or shorter ids, or raise Settings.max_list_bytes"
            )
        return str(error)

    # -- calls -----------------------------------------------------------------------

    def allocate(self, device_ids: tuple[DeviceId, ...]) -> AllocateAnswer:
        """Allocate for one container; responses stay bytes, as the checkpoint keeps them."""
        request = dp.AllocateRequest(
            container_requests=[dp.ContainerAllocateRequest(devices_ids=device_ids)]
        )
        try:
            response = self._stub.Allocate(request, timeout=self._settings.allocate_timeout)
        except (grpc.RpcError, ValueError) as error:
            raise _translated(error) from error
        return AllocateAnswer(
            tuple(
                each.SerializeToString(deterministic=True) for each in response.container_responses
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
        try:
            response = self._stub.GetPreferredAllocation(
                dp.PreferredAllocationRequest(container_requests=[wanted]),
                timeout=self._settings.preferred_allocation_timeout,
            )
        except (grpc.RpcError, ValueError) as error:
            raise _translated(error) from error
        answers = response.container_responses
        return tuple(map(DeviceId, answers[0].deviceIDs)) if answers else ()

    def pre_start_container(self, device_ids: tuple[DeviceId, ...]) -> None:
        """PreStartContainer. Raises ``RpcError``."""
        try:
            self._stub.PreStartContainer(
                dp.PreStartContainerRequest(devices_ids=device_ids),
                timeout=self._settings.pre_start_timeout,
            )
        except (grpc.RpcError, ValueError) as error:
            raise _translated(error) from error

    # -- end -------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection; calls under way fail and the list thread ends.

        A channel that was just opened takes gRPC up to 0.2 s to close. That is left to the
        list thread if there is one: whoever registers anew does not wait for the old.
        """
        with self._lock:
            self._closing = True
            stream, thread = self._stream, self._thread
        if thread is None or thread is threading.current_thread():
            self._channel.close()
        elif stream is not None:
            stream.cancel()

    def join(self) -> None:
        """Wait for the list thread, at most 10 s. Not from that thread itself."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)


def _wait_ready(channel: grpc.Channel, limit: float, stopping: threading.Event) -> None:
    """Wait for a connection, in slices so that a kubelet that stops need not wait along.
    Raises FutureTimeoutError."""
    ready = grpc.channel_ready_future(channel)
    while True:
        rest = limit - time.monotonic()
        try:
            return ready.result(timeout=max(0.0, min(rest, _SLICE)))
        except grpc.FutureTimeoutError:
            if rest <= _SLICE or stopping.is_set():
                raise


def _translated(error: grpc.RpcError | ValueError) -> RpcError:
    # grpc raises ValueError for a call on a channel that was closed.
    if isinstance(error, ValueError):
        return RpcError("Canceled", "grpc: the client connection is closing")
    return rpc_error(error)


def _channel_options(settings: Settings) -> list[tuple[str, int | str]]:
    return [
        sockets.AUTHORITY,
        ("grpc.max_receive_message_length", settings.max_list_bytes),
        # Connections to one path must not be shared: each is a registration.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.min_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 500),
    ]

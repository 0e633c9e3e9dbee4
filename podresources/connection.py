"""A client connection to a socket of the kubelet, with an error class for each kind of failure."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import grpc

from podresources import sockets
from podresources.errors import (
    AnswerTooLarge,
    CallFailed,
    ClientClosed,
    DeadlineExceeded,
    MethodUnavailable,
    NotReady,
    NotServing,
    PodNotFound,
    PodResourcesError,
    RateLimited,
    SocketNotFound,
    WatchDropped,
)

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""Largest response that the kubelet's Go client accepts, in bytes
(``defaultPodResourcesMaxSize``)."""

OPTIONS = (
    sockets.AUTHORITY,
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    # Without this option, all channels to one path share the backoff after a failed connection.
    ("grpc.use_local_subchannel_pool", 1),
)

_DENIED = os.strerror(errno.EACCES)

_GETS = ("/v1.PodResourcesLister/Get", "/v1alpha1.Pods/GetPod")
"""Methods that return one pod."""


class Connection:
    """Connection to one socket; connects at the first call. Thread-safe.

    Methods raise a :class:`PodResourcesError`.
    """

    def __init__(
        self, socket_path: str | os.PathLike[str], timeout: float, client: str, usual_socket: str
    ) -> None:
        """``timeout`` is the number of seconds for one call. Errors mention ``client``, the name of
        the client's class, and ``usual_socket``, the path of the socket on a node."""
        plain = os.fspath(socket_path).removeprefix("unix:")
        self.socket_path = Path(os.path.abspath(plain))  # noqa: PTH100 - keeps symlinks
        sockets.check_path(self.socket_path)
        self._timeout = timeout
        self._client = client
        self._usual_socket = usual_socket
        # Guards _channel and _closed.
        self._lock = threading.Lock()
        self._closed = False
        self._channel = self._connect()

    def close(self) -> None:
        """Close the connection. Can be called several times."""
        with self._lock:
            self._closed = True
            self._channel.close()

    def call(self, method: str, request: bytes) -> bytes:
        """Call a method and return its response."""
        channel = self._channel
        try:
            call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
            return call(request, timeout=self._timeout)
        except grpc.RpcError as error:
            raise self._failed(channel, error, method) from error
        except ValueError as error:  # raised by grpc for a closed channel
            raise self._is_closed() from error

    def stream(self, method: str, request: bytes, timeout: float | None) -> Stream:
        """Call a method that returns a stream of responses.

        The stream raises DeadlineExceeded after ``timeout`` seconds; None: no limit.
        """
        channel = self._channel
        try:
            call: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(method)
            return Stream(self, channel, method, call(request, timeout=timeout), timeout)
        except ValueError as error:
            raise self._is_closed() from error

    def _is_closed(self) -> ClientClosed:
        return ClientClosed(
            f"the client for {self.socket_path} is closed: create a new {self._client}"
        )

    def _failed(
        self,
        channel: grpc.Channel,
        error: grpc.RpcError,
        method: str,
        timeout: float | None = None,
    ) -> PodResourcesError:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            self._replace(channel)
        return self._translated(error, method, timeout)

    def _connect(self) -> grpc.Channel:
        return grpc.insecure_channel(sockets.target(self.socket_path), options=OPTIONS)

    def _replace(self, failed: grpc.Channel) -> None:
        """Use a new channel for the next call. ``failed`` is the channel of the failed call."""
        # During its backoff, the failed channel would return the old error even if the kubelet has
        # restarted.
        with self._lock:
            if self._channel is failed and not self._closed:
                # The failed channel is not closed: other threads may have calls on it. It is freed
                # after the last of these calls.
                self._channel = self._connect()

    def _translated(
        self, error: grpc.RpcError, method: str, timeout: float | None = None
    ) -> PodResourcesError:
        code, text, path = error.code(), error.details() or "", self.socket_path
        match code:
            case grpc.StatusCode.UNAVAILABLE:
                return self._unavailable(text)
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                seconds = self._timeout if timeout is None else timeout
                return DeadlineExceeded(f"{path}: no response to {method} within {seconds:g} s")
            case grpc.StatusCode.CANCELLED:
                return ClientClosed(f"the client for {path} was closed during {method}")
            case grpc.StatusCode.RESOURCE_EXHAUSTED if "larger than max" in text:
                return AnswerTooLarge(
                    f"{path}: response to {method} exceeds {MAX_ANSWER_BYTES} bytes: {text}"
                )
            case grpc.StatusCode.RESOURCE_EXHAUSTED if "rate limit" in text:
                return RateLimited(f"{path}: too many calls: {text}; retry later")
            case grpc.StatusCode.UNIMPLEMENTED:
                return MethodUnavailable(f"{path} does not serve {method}: use a newer kubelet")
            case grpc.StatusCode.RESOURCE_EXHAUSTED if text == "watch client channel closed":
                return WatchDropped(f"{path}: {text}: read events faster, or watch again")
            case grpc.StatusCode.FAILED_PRECONDITION if text == "Kubelet is initializing":
                return NotReady(f"{path}: {text}: retry later")
            # Older kubelets return a disabled method and an unknown pod as plain Go errors, which
            # gRPC sends as UNKNOWN.
            case grpc.StatusCode.UNKNOWN if text.endswith(" disabled"):
                return MethodUnavailable(f"{path} has disabled {method}: {text}")
            case grpc.StatusCode.UNKNOWN | grpc.StatusCode.NOT_FOUND if (
                method in _GETS and text.endswith(" not found")
            ):
                return PodNotFound(f"{path}: {text}")
        return CallFailed(f"{path} failed on {method}: {code.name}: {text}", code.name)

    def _unavailable(self, text: str) -> PodResourcesError:
        path = self.socket_path
        try:
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return SocketNotFound(
                f"there is no socket at {path}: "
                "check that the kubelet runs and its directory is mounted"
            )
        except OSError as error:
            return NotServing(f"{path} cannot be reached: {_reason(error.strerror or str(error))}")
        if not stat.S_ISSOCK(mode):
            return NotServing(f"{path} is not a socket: use the kubelet's {self._usual_socket}")
        if _DENIED in text:
            return NotServing(f"{path} cannot be reached: {_reason(_DENIED)}")
        return NotServing(f"no response on {path}: {text}")


class _Responses(Protocol):
    def __next__(self) -> bytes: ...
    def cancel(self) -> object: ...


class Stream:
    """Iterator over the responses of one call. ``cancel`` ends the call, from any thread."""

    def __init__(
        self,
        connection: Connection,
        channel: grpc.Channel,
        method: str,
        call: _Responses,
        timeout: float | None,
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._method = method
        self._call = call
        self._timeout = timeout
        self._is_cancelled = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._call)
        except grpc.RpcError as error:
            if self._is_cancelled:
                raise StopIteration from error
            raise self._connection._failed(
                self._channel, error, self._method, self._timeout
            ) from error

    def cancel(self) -> None:
        """End the call. Idempotent."""
        self._is_cancelled = True
        self._call.cancel()


def _reason(text: str) -> str:
    return f"{text}; on most nodes, only root can connect" if text == _DENIED else text

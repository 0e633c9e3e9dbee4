"""Client of the PodResources API, for any kubelet that serves v1 or v1alpha1."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import grpc

from podresources import decoding, sockets
from podresources.errors import (
    AnswerInvalid,
    AnswerTooLarge,
    CallFailed,
    ClientClosed,
    DeadlineExceeded,
    MethodUnavailable,
    NotServing,
    PodNotFound,
    PodResourcesError,
    RateLimited,
    SocketNotFound,
)
from podresources.values import Allocatable, Pod
from protos import podresources_v1 as v1
from protos import podresources_v1_grpc as v1_grpc
from protos import podresources_v1alpha1_grpc as v1alpha1_grpc

DEFAULT_SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"

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

T = TypeVar("T")


class PodResourcesClient:
    """Client of one PodResources socket. Thread-safe. It connects at the first call.

    ``socket_path`` is a path or a URL such as ``unix:///path``. ``timeout`` is the number of
    seconds for one attempt. ``rate_limit_attempts`` is the number of attempts while the server's
    rate limit rejects a call; 1 disables retries. The delay between attempts doubles from 20 ms up
    to 1 s. ``sleep`` performs the delay.

    Every method raises a subclass of :class:`PodResourcesError`: SocketNotFound, NotServing,
    DeadlineExceeded, RateLimited, MethodUnavailable, AnswerTooLarge, AnswerInvalid, CallFailed or
    ClientClosed. ``get`` also raises PodNotFound.
    """

    def __init__(
        self,
        socket_path: str | os.PathLike[str] = DEFAULT_SOCKET,
        *,
        timeout: float = 10.0,
        rate_limit_attempts: int = 1,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        plain = os.fspath(socket_path).removeprefix("unix:")
        self.socket_path = Path(os.path.abspath(plain))  # noqa: PTH100 - keeps symlinks
        sockets.check_path(self.socket_path)
        self._timeout = timeout
        self._attempts = rate_limit_attempts
        self._sleep = sleep
        # Guards _channel and _closed.
        self._lock = threading.Lock()
        self._closed = False
        self._channel = self._connect()

    def list(self) -> tuple[Pod, ...]:
        """Return the pods with the resources of their containers."""
        return self._ask(v1_grpc.LIST, b"", decoding.pods_from_bytes)

    def get_allocatable(self) -> Allocatable:
        """Return the resources that the node can allocate, including those in use."""
        decode = decoding.allocatable_from_bytes
        return self._ask(v1_grpc.GET_ALLOCATABLE_RESOURCES, b"", decode)

    def get(self, name: str, namespace: str = "default") -> Pod:
        """Return the pod with this name.

        Raises MethodUnavailable for a kubelet before v1.27, or if its feature gate is off. Raises
        PodNotFound for an unknown pod.
        """
        request = v1.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        return self._ask(v1_grpc.GET, request.SerializeToString(), decoding.pod_from_bytes)

    def list_v1alpha1(self) -> tuple[Pod, ...]:
        """Return the pods from the older API version v1alpha1, which has only app containers and no
        topology."""
        return self._ask(v1alpha1_grpc.LIST, b"", decoding.pods_from_v1alpha1_bytes)

    def close(self) -> None:
        """Close the connection. Can be called several times."""
        with self._lock:
            self._closed = True
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

    def _ask(self, method: str, request: bytes, decode: Callable[[bytes], T]) -> T:
        data = self._call(method, request)
        try:
            return decode(data)
        except decoding.DecodeError as error:
            raise AnswerInvalid(
                f"{self.socket_path}: invalid response to {method}: {error}"
            ) from error

    def _call(self, method: str, request: bytes) -> bytes:
        if self._attempts <= 1:
            return self._attempt(method, request)
        # Imported here: most callers do not retry, and start-up time matters to them.
        import tenacity

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(RateLimited),
            stop=tenacity.stop_after_attempt(self._attempts),
            wait=tenacity.wait_exponential(multiplier=0.02, max=1),
            sleep=self._sleep,
            reraise=True,
        )
        return retrying(self._attempt, method, request)

    def _attempt(self, method: str, request: bytes) -> bytes:
        channel = self._channel
        try:
            call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
            return call(request, timeout=self._timeout)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                self._replace(channel)
            raise self._translated(error, method) from error
        except ValueError as error:  # raised by grpc for a closed channel
            raise ClientClosed(
                f"the client for {self.socket_path} is closed: create a new PodResourcesClient"
            ) from error

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

    def _translated(self, error: grpc.RpcError, method: str) -> PodResourcesError:
        code, text, path = error.code(), error.details() or "", self.socket_path
        match code:
            case grpc.StatusCode.UNAVAILABLE:
                return self._unavailable(text)
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return DeadlineExceeded(
                    f"{path}: no response to {method} within {self._timeout:g} s"
                )
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
            # Older kubelets return a disabled method and an unknown pod as plain Go errors, which
            # gRPC sends as UNKNOWN.
            case grpc.StatusCode.UNKNOWN if text.endswith(" disabled"):
                return MethodUnavailable(f"{path} has disabled {method}: {text}")
            case grpc.StatusCode.UNKNOWN | grpc.StatusCode.NOT_FOUND if (
                method == v1_grpc.GET and text.endswith(" not found")
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
            return NotServing(
                f"{path} is not a socket: use the kubelet's pod-resources/kubelet.sock"
            )
        if _DENIED in text:
            return NotServing(f"{path} cannot be reached: {_reason(_DENIED)}")
        return NotServing(f"no response on {path}: {text}")


def _reason(text: str) -> str:
    return f"{text}; on most nodes, only root can connect" if text == _DENIED else text

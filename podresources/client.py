"""Client of the PodResources API, for any kubelet that serves v1 or v1alpha1."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from podresources import decoding
from podresources.connection import Connection
from podresources.errors import AnswerInvalid, RateLimited
from podresources.values import Allocatable, Pod
from protos import podresources_v1 as v1
from protos import podresources_v1_grpc as v1_grpc
from protos import podresources_v1alpha1_grpc as v1alpha1_grpc

DEFAULT_SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"

T = TypeVar("T")


class PodResourcesClient:
    """Client of one PodResources socket. Thread-safe. It connects at the first call.

    ``socket_path`` is a path or a URL such as ``unix:///path``. ``timeout`` is the number of
    seconds for one attempt. ``rate_limit_attempts`` is the maximum number of attempts if the
    server's rate limit rejects a call; 1 disables retries. The delay between attempts doubles from
    20 ms up to 1 s. ``sleep`` performs the delay.

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
        self._connection = Connection(
            socket_path, timeout, "PodResourcesClient", "pod-resources/kubelet.sock"
        )
        self.socket_path = self._connection.socket_path
        self._attempts = rate_limit_attempts
        self._sleep = sleep

    def list(self) -> tuple[Pod, ...]:
        """Return the pods with the resources of their containers."""
        return self._ask(v1_grpc.LIST, b"", decoding.pods_from_bytes)

    def get_allocatable(self) -> Allocatable:
        """Return the resources that the node can allocate, including those in use."""
        decode = decoding.allocatable_from_bytes
        return self._ask(v1_grpc.GET_ALLOCATABLE_RESOURCES, b"", decode)

    def get(self, name: str, namespace: str = "default") -> Pod:
        """Return the pod with this name and namespace.

        Raises MethodUnavailable for a kubelet before v1.27, or if the feature gate of Get is off.
        Raises PodNotFound for an unknown pod.
        """
        request = v1.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        return self._ask(v1_grpc.GET, request.SerializeToString(), decoding.pod_from_bytes)

    def list_v1alpha1(self) -> tuple[Pod, ...]:
        """Return the pods from the older API version v1alpha1, which has only app containers and no
        topology."""
        return self._ask(v1alpha1_grpc.LIST, b"", decoding.pods_from_v1alpha1_bytes)

    def close(self) -> None:
        """Close the connection. Can be called several times."""
        self._connection.close()

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
            return self._connection.call(method, request)
        # Imported here: most callers do not retry, and start-up time matters to them.
        import tenacity

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(RateLimited),
            stop=tenacity.stop_after_attempt(self._attempts),
            wait=tenacity.wait_exponential(multiplier=0.02, max=1),
            sleep=self._sleep,
            reraise=True,
        )
        return retrying(self._connection.call, method, request)

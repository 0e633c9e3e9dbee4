"""Errors of the PodResources server (:class:`ServeError`, :class:`SocketInUse` and
:class:`SocketPathError`) and of the client (all others).

The underlying error, if any, is in ``__cause__``.
"""

from __future__ import annotations

# There is one class per remedy: wait and retry, fix the path, use a newer kubelet, and so on. gRPC
# status codes do not distinguish these, because the kubelet sends most errors as UNKNOWN.


class PodResourcesError(Exception):
    """Base class of all errors of the package ``podresources``."""


class SocketPathError(PodResourcesError):
    """Error for an invalid socket path: too long or relative."""


class ServeError(PodResourcesError):
    """Error of a server that cannot listen on its socket."""


class SocketInUse(ServeError):
    """Error of a server if another process is listening on its socket."""


class SocketNotFound(PodResourcesError):
    """Error of a client if its socket path does not exist."""


class NotServing(PodResourcesError):
    """Error of a client that cannot connect: the path is not a socket, permission is missing, no
    process is listening, or the connection failed."""


class DeadlineExceeded(PodResourcesError):
    """Error for a response that took longer than the client's timeout."""


class RateLimited(PodResourcesError):
    """Error for a call that the server's rate limit rejected."""


class MethodUnavailable(PodResourcesError):
    """Error for a method that the server does not have or that a feature gate disables."""


class PodNotFound(PodResourcesError):
    """Error for a pod that the server does not know by this name and namespace, or by this UID."""


class NotReady(PodResourcesError):
    """Error of a kubelet that has started and does not know all its pods yet."""


class WatchDropped(PodResourcesError):
    """Error for a watch that the kubelet ended, because its client reads too slowly or the kubelet
    stops."""


class AnswerTooLarge(PodResourcesError):
    """Error for a response that is larger than the client accepts."""


class AnswerInvalid(PodResourcesError):
    """Error for a response that cannot be decoded as the message type of the method."""


class ClientClosed(PodResourcesError):
    """Error for a call on a client that was closed before or during the call."""


class CallFailed(PodResourcesError):
    """Error for a call that failed for a reason without a separate error class. ``code`` is the
    name of the gRPC status code."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code

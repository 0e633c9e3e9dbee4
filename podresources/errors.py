"""Errors of the PodResources server (:class:`ServeError`) and client (all others).

The underlying error, if any, is in ``__cause__``.
"""

from __future__ import annotations

# One class per remedy: wait and retry, fix the path, use a newer kubelet, and so on. gRPC's codes
# do not separate these, because the kubelet sends most errors as UNKNOWN.


class PodResourcesError(Exception):
    """Base class of all errors of this package."""


class SocketPathError(PodResourcesError):
    """An invalid socket path: too long or relative."""


class ServeError(PodResourcesError):
    """The server cannot listen on its socket."""


class SocketInUse(ServeError):
    """Another process is listening on the socket."""


class SocketNotFound(PodResourcesError):
    """There is no socket at the client's path."""


class NotServing(PodResourcesError):
    """The path is not a socket, cannot be opened, has no listening process, or the connection
    failed."""


class DeadlineExceeded(PodResourcesError):
    """The server took longer than the client's timeout."""


class RateLimited(PodResourcesError):
    """The server's rate limit rejected the call."""


class MethodUnavailable(PodResourcesError):
    """The server does not have the method, or a feature gate disables it."""


class PodNotFound(PodResourcesError):
    """The server has no pod of this name or UID."""


class NotReady(PodResourcesError):
    """The kubelet has started and does not know all its pods yet."""


class WatchDropped(PodResourcesError):
    """The kubelet ended a watch: its client read too slowly, or the kubelet stops."""


class AnswerTooLarge(PodResourcesError):
    """The response is larger than the client accepts."""


class AnswerInvalid(PodResourcesError):
    """The response is not the message type of the method."""


class ClientClosed(PodResourcesError):
    """The client was closed before or during the call."""


class CallFailed(PodResourcesError):
    """The call failed with another error. ``code`` is the name of the gRPC status code."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code

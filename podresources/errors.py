"""What can go wrong, by who has to act.

Serving: :class:`ServeError`. Asking: all others. The cause, where there is one, is
kept as ``__cause__``.
"""

from __future__ import annotations


class PodResourcesError(Exception):
    """The root of all errors of this package."""


class SocketPathError(PodResourcesError):
    """A socket path that can never work: too long or relative."""


class ServeError(PodResourcesError):
    """The server cannot listen on its socket."""


class SocketInUse(ServeError):
    """Somebody else answers on the socket already."""


class SocketNotFound(PodResourcesError):
    """There is no socket at the client's path."""


class NotServing(PodResourcesError):
    """What is there is no socket or may not be opened, or nobody answers on it, or the connection
    broke."""


class DeadlineExceeded(PodResourcesError):
    """The server took longer than the client's timeout."""


class RateLimited(PodResourcesError):
    """The server rejected the call because it gets too many."""


class MethodUnavailable(PodResourcesError):
    """The server does not know the method, or has it switched off by a feature gate."""


class PodNotFound(PodResourcesError):
    """The server knows no pod of this name in this namespace."""


class AnswerTooLarge(PodResourcesError):
    """The answer is larger than the client accepts."""


class AnswerInvalid(PodResourcesError):
    """The answer is not the message that the method promises."""


class ClientClosed(PodResourcesError):
    """The client was closed before or during the call."""


class CallFailed(PodResourcesError):
    """The server answered with another error. ``code`` is gRPC's name for its kind."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code

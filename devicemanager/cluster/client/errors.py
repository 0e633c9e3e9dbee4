"""What can go wrong between the API server and us."""

from __future__ import annotations

from devicemanager.core.errors import DeviceManagerError

__all__ = [
    "ApiError",
    "ClientClosing",
    "ClusterError",
    "Conflict",
    "Forbidden",
    "Gone",
    "Invalid",
    "NotFound",
    "Unauthorized",
    "Unavailable",
    "api_error",
]


class ClusterError(DeviceManagerError):
    """The cluster cannot be joined; one line says what, where and what to do."""


class ClientClosing(Exception):
    """We are about to stop: the request was given up, or is not made any more."""


class Unavailable(ClusterError):
    """No answer, or one that says to try again: it may be another one later."""

    def __init__(self, text: str, wait: float = 0.0) -> None:
        """``wait``: the seconds for which the server asks not to be asked again."""
        super().__init__(text)
        self.wait = wait


class ApiError(ClusterError):
    """The API server's answer is an error that trying again does not mend."""

    def __init__(self, code: int, reason: str, message: str, method: str, path: str) -> None:
        """``reason`` and ``message`` are the answer's (``metav1.Status``), or empty."""
        super().__init__(f"{method} {path}: {code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.method = method
        self.path = path


class Unauthorized(ApiError):
    """401: the credentials are not, or no longer, accepted."""


class Forbidden(ApiError):
    """403: the identity lacks a right; the message names verb and resource."""


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409: another object of this name, another UID, or a newer version."""


class Gone(ApiError):
    """410: the version to watch from is too old; LIST again."""


class Invalid(ApiError):
    """422: a body that the server cannot accept: a bug of ours."""


_BY_CODE: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}


def api_error(code: int, reason: str, message: str, method: str, path: str) -> ApiError:
    """The error for a status code."""
    return _BY_CODE.get(code, ApiError)(code, reason, message, method, path)

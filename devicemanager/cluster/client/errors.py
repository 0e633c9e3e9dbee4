"""Errors of requests to the API server."""

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
    """The cluster cannot be joined; the text is one line with the problem and the fix."""


class ClientClosing(Exception):
    """The client is closed: the request was abandoned or not sent."""


class Unavailable(ClusterError):
    """No response, or one that asks to retry: the same request can succeed later."""

    def __init__(self, text: str, wait: float = 0.0) -> None:
        """``wait``: seconds that the server asks to wait before the next request."""
        super().__init__(text)
        self.wait = wait


class ApiError(ClusterError):
    """The API server responded with an error that a retry does not fix."""

    def __init__(self, code: int, reason: str, message: str, method: str, path: str) -> None:
        """``reason`` and ``message`` are those of the response (``metav1.Status``), or empty."""
        super().__init__(f"{method} {path}: {code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.method = method
        self.path = path


class Unauthorized(ApiError):
    """401: the credentials are invalid or have expired."""


class Forbidden(ApiError):
    """403: a permission is missing; the message names verb and resource."""


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409: the name exists, the UID differs, or the resource version is outdated."""


class Gone(ApiError):
    """410: the watch expired; relist."""


class Invalid(ApiError):
    """422: the server rejects the body. This is a bug in devicemanager."""


_BY_CODE: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}


def api_error(code: int, reason: str, message: str, method: str, path: str) -> ApiError:
    """Return the error for a status code."""
    return _BY_CODE.get(code, ApiError)(code, reason, message, method, path)

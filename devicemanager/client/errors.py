"""Exceptions for requests to the API server."""

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
    """Error for a cluster that nodes cannot join, or that is unavailable.

    The text is one line with the problem and, if known, the fix.
    """


class ClientClosing(Exception):
    """Error for a request that was not sent or not finished, because the client is closed."""


class Unavailable(ClusterError):
    """Error for a request that failed but can succeed later: no response, 429 or 5xx."""

    def __init__(self, text: str, wait: float = 0.0) -> None:
        """Create the error. ``wait``: seconds in the header Retry-After; 0 without the header."""
        super().__init__(text)
        self.wait = wait


class ApiError(ClusterError):
    """Permanent error response of the API server: any error code other than 429 and 5xx."""

    def __init__(self, code: int, reason: str, message: str, method: str, path: str) -> None:
        """Create the error; ``reason`` and ``message`` are fields of the response
        (``metav1.Status``), or empty."""
        super().__init__(f"{method} {path}: {code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.method = method
        self.path = path


class Unauthorized(ApiError):
    """Error response 401: the credentials are invalid or have expired."""


class Forbidden(ApiError):
    """Error response 403: a permission is missing; the message names verb and resource."""


class NotFound(ApiError):
    """Error response 404: the object or resource does not exist."""


class Conflict(ApiError):
    """Error response 409: the name already exists, or the UID or resource version in the request is
    not that of the object."""


class Gone(ApiError):
    """Error response 410: the resource version of a watch has expired; relist."""


class Invalid(ApiError):
    """Error response 422: the server rejects the request body. This is a bug in devicemanager."""


# Only codes that a caller handles in a special way have a class of their own.
_BY_CODE: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}


def api_error(code: int, reason: str, message: str, method: str, path: str) -> ApiError:
    """Return an error of the class that belongs to the HTTP status code ``code``."""
    return _BY_CODE.get(code, ApiError)(code, reason, message, method, path)

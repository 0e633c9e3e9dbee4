"""Error responses of the fake API server, with the texts of a real API server."""

from __future__ import annotations

from typing import Any

from devicemanager.cluster.fake_apiserver.kinds import Target

__all__ = ["StatusError", "already_exists", "conflict", "not_found", "status"]

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


class StatusError(Exception):
    """Error for a failed request, with its ``metav1.Status`` (``StatusError`` in
    apimachinery)."""

    def __init__(self, code: int, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason or _REASONS.get(code, "Unknown")

    def body(self) -> dict[str, Any]:
        """Return the ``metav1.Status`` for the body of the response."""
        return status(self.code, self.reason, self.message)


def not_found(target: Target) -> StatusError:
    """Return the error 404 for an object that does not exist."""
    return StatusError(404, f'{target.kind.plural} "{target.name}" not found')


def already_exists(target: Target, name: str) -> StatusError:
    """Return the error 409 for an object whose name is already in use."""
    return StatusError(409, f'{target.kind.plural} "{name}" already exists', "AlreadyExists")


def conflict(target: Target, why: str) -> StatusError:
    """Return the error 409 for an object whose UID or version is not the expected one."""
    what = f'Operation cannot be fulfilled on {target.kind.plural} "{target.name}"'
    return StatusError(409, f"{what}: {why}")


def status(code: int, reason: str, message: str) -> dict[str, Any]:
    """Return a ``metav1.Status`` that reports a failure."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }

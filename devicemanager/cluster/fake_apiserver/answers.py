"""The stub's errors, in the API server's words."""

from __future__ import annotations

from typing import Any

from devicemanager.cluster.fake_apiserver.kinds import Target

__all__ = ["Rejection", "status"]

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


class Rejection(Exception):
    """A request is answered with an error."""

    def __init__(self, code: int, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason or _REASONS.get(code, "Unknown")

    @staticmethod
    def not_found(target: Target) -> Rejection:
        """There is no such object."""
        return Rejection(404, f'{target.kind.plural} "{target.name}" not found')

    @staticmethod
    def exists(target: Target, name: str) -> Rejection:
        """There is one already."""
        return Rejection(409, f'{target.kind.plural} "{name}" already exists', "AlreadyExists")

    @staticmethod
    def conflict(target: Target, why: str) -> Rejection:
        """It is not the object that was meant, or no longer as it was."""
        what = f'Operation cannot be fulfilled on {target.kind.plural} "{target.name}"'
        return Rejection(409, f"{what}: {why}")

    def body(self) -> dict[str, Any]:
        """As ``metav1.Status``."""
        return status(self.code, self.reason, self.message)


def status(code: int, reason: str, message: str) -> dict[str, Any]:
    """A ``metav1.Status`` of failure."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }

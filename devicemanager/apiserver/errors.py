"""Error responses of the API server, with the texts of a real API server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from devicemanager.apiserver.kinds import Target

__all__ = [
    "StatusError",
    "already_exists",
    "conflict",
    "invalid",
    "not_found",
    "precondition_failed",
    "status",
]

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class StatusError(Exception):
    """Error for a failed request, with its ``metav1.Status`` (``StatusError`` in
    apimachinery)."""

    def __init__(
        self,
        code: int,
        message: str,
        reason: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason or _REASONS.get(code, "Unknown")
        self.details = details

    def body(self) -> dict[str, Any]:
        """Return the ``metav1.Status`` for the body of the response."""
        return status(self.code, self.reason, self.message, self.details)


def not_found(target: Target) -> StatusError:
    """Return the error 404 for an object that does not exist."""
    message = f'{target.kind.qualified} "{target.name}" not found'
    return StatusError(404, message, details=_details(target, target.name))


def already_exists(target: Target, name: str) -> StatusError:
    """Return the error 409 for an object whose name is already in use."""
    message = f'{target.kind.qualified} "{name}" already exists'
    return StatusError(409, message, "AlreadyExists", _details(target, name))


def conflict(target: Target, why: str) -> StatusError:
    """Return the error 409 for an object whose UID or version is not the expected one."""
    what = f'Operation cannot be fulfilled on {target.kind.qualified} "{target.name}"'
    return StatusError(409, f"{what}: {why}", details=_details(target, target.name))


def precondition_failed(target: Target, field: str, wanted: str, found: str) -> StatusError:
    """Return the error 409 for a UID or ResourceVersion that is not the object's one."""
    return conflict(
        target,
        f"Precondition failed: {field} in precondition: {wanted}, {field} in object meta: {found}",
    )


def invalid(target: Target, name: str, problems: Sequence[tuple[str, str, str]]) -> StatusError:
    """Return the error 422 for an object that breaks rules.

    ``problems`` has a row for each broken rule: the reason of its cause, such as
    ``FieldValueRequired``, the path of the field, and the text.
    """
    texts = [f"{field}: {text}" for _, field, text in problems]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    kind = target.kind
    what = f"{kind.name}.{kind.group}" if kind.group else kind.name
    causes = [{"reason": reason, "message": text, "field": at} for reason, at, text in problems]
    details = {"name": name, "group": kind.group, "kind": kind.name, "causes": causes}
    return StatusError(
        422,
        f'{what} "{name}" is invalid: {text}',
        details={key: value for key, value in details.items() if value},
    )


def _details(target: Target, name: str) -> dict[str, Any]:
    found = {"name": name, "group": target.kind.group, "kind": target.kind.plural}
    return {key: value for key, value in found.items() if value}


def status(
    code: int, reason: str, message: str, details: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a ``metav1.Status`` that reports a failure."""
    found: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return found if details is None else {**found, "details": dict(details)}

"""Error responses, with the messages of a real API server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from devicemanager.apiserver.kinds import Target
from devicemanager.core.printable import printable
from devicemanager.objects.dra import FieldError, message

__all__ = [
    "PageNotFound",
    "StatusError",
    "already_exists",
    "as_status",
    "conflict",
    "deleted",
    "deletion_rejected",
    "invalid",
    "not_admitted",
    "not_allowed",
    "not_found",
    "patch_rejected",
    "precondition_failed",
    "status",
    "too_large",
    "undecodable",
    "update_rejected",
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
    413: "RequestEntityTooLarge",
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
        self.reason = _REASONS.get(code, "Unknown") if reason is None else reason
        self.details = details

    def body(self) -> dict[str, Any]:
        """Return the ``metav1.Status`` for the body of the response."""
        return status(self.code, self.reason, self.message, self.details)


@contextlib.contextmanager
def as_status() -> Iterator[None]:
    """Convert any exception in the ``with`` block to a StatusError, so that each request gets a
    response.

    A real API server also responds with 500 if its handler panics.
    """
    try:
        yield
    except StatusError:
        raise
    except RecursionError:
        raise StatusError(400, "the object is nested too deeply: exceeded max depth") from None
    except Exception as error:
        text = f"this request caused the API server to panic: {error!r}"
        raise StatusError(500, printable(text)) from error


class PageNotFound(StatusError):
    """Error for an unknown path. Its body is plain text."""

    def __init__(self) -> None:
        super().__init__(404, "404 page not found")


def not_allowed() -> StatusError:
    """Return the error 405: the path does not support the method."""
    text = "the server does not allow this method on the requested resource"
    return StatusError(405, text, details={})


def patch_rejected(error: ValueError) -> StatusError:
    """Return the error 422: a patch cannot be applied.

    As on a real API server, the message does not say why.
    """
    found = StatusError(
        422, "the server rejected our request due to an error in our request", details={}
    )
    found.__cause__ = error
    return found


def too_large(why: str) -> StatusError:
    """Return the error 413: a request is too large."""
    return StatusError(413, f"Request entity too large: {why}")


def not_found(target: Target) -> StatusError:
    """Return the error 404: the object does not exist."""
    message = f'{target.kind.qualified} "{target.name}" not found'
    return StatusError(404, message, details=_details(target, target.name))


def already_exists(target: Target, name: str) -> StatusError:
    """Return the error 409: the name is already in use."""
    message = f'{target.kind.qualified} "{name}" already exists'
    return StatusError(409, message, "AlreadyExists", _details(target, name))


def conflict(target: Target, why: str) -> StatusError:
    """Return the error 409: the object's UID or version is not the expected one."""
    what = f'Operation cannot be fulfilled on {target.kind.qualified} "{target.name}"'
    return StatusError(409, f"{what}: {why}", details=_details(target, target.name))


def not_admitted(target: Target, why: str) -> StatusError:
    """Return the error 403: an admission plugin rejects the request."""
    what = f'{target.kind.qualified} "{target.name}"'
    return StatusError(403, f"{what} is forbidden: {why}", details=_details(target, target.name))


def precondition_failed(target: Target, wanted: str, found: str) -> StatusError:
    """Return the error 409: an update has a UID that differs from the object's."""
    key = "/".join(filter(None, (target.kind.plural, target.namespace, target.name)))
    return conflict(
        target,
        f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object "
        f"meta: {found}",
    )


def deletion_rejected(target: Target, field: str, wanted: str, found: str) -> StatusError:
    """Return the error 409: the UID or version in a deletion's preconditions is not the object's.

    Source: ``BeforeDelete`` of ``k8s.io/apiserver``.
    """
    kind = target.kind
    what = f"{kind.name}.{kind.group}" if kind.group else kind.name
    happened = "deleted and then recreated" if field == "UID" else "modified"
    details = {**_details(target, target.name), "kind": kind.name}
    return StatusError(
        409,
        f'Operation cannot be fulfilled on {what} "{target.name}": the {field} in the '
        f"precondition ({wanted}) does not match the {field} in record ({found}). The object "
        f"might have been {happened}",
        details=details,
    )


def invalid(target: Target, name: str, errors: Sequence[FieldError]) -> StatusError:
    """Return the error 422 with the rules that the object breaks."""
    kind = target.kind
    what = f"{kind.name}.{kind.group}" if kind.group else kind.name
    causes = [{"reason": each.reason, "message": each.text, "field": each.field} for each in errors]
    details = {"name": name, "group": kind.group, "kind": kind.name, "causes": causes}
    return StatusError(
        422,
        f'{what} "{name}" is invalid: {message(errors)}',
        details={key: value for key, value in details.items() if value},
    )


def patch_mismatch(shown: str, why: str) -> StatusError:
    """Return the error 422: the result of a patch cannot be decoded as an object.

    ``shown``: the patch or its result, for the message. As on a real API server, the message does
    not name the object.
    """
    error = FieldError("FieldValueInvalid", "patch", shown, why)
    causes = [{"reason": error.reason, "message": error.text, "field": error.field}]
    return StatusError(422, f' "" is invalid: {message([error])}', details={"causes": causes})


def update_rejected(target: Target, error: FieldError) -> StatusError:
    """Return the error 422: an update is invalid, for example because it has no
    ``resourceVersion``.

    The message starts with the plural name, such as ``nodes``, and not with the kind.
    """
    kind = attrs.evolve(target.kind, name=target.kind.plural)
    return invalid(attrs.evolve(target, kind=kind), target.name, [error])


def undecodable(target: Target, reason: str, body: bytes) -> StatusError:
    """Return the error 400: the body is not an object in the request's encoding."""
    kind = target.kind.name
    return StatusError(
        400,
        f"the object provided is unrecognized (must be of type {kind}): {reason} "
        f"({_summary(body)})",
    )


def _summary(body: bytes, most: int = 30) -> str:
    if not body:
        return "<empty>"
    is_object = body.startswith(b"{")
    shown = body[:most].decode(errors="replace") if is_object else body[:most].hex()
    return shown if len(body) <= most else f"{shown} ..."


def _details(target: Target, name: str) -> dict[str, Any]:
    found = {"name": name, "group": target.kind.group, "kind": target.kind.plural}
    return {key: value for key, value in found.items() if value}


def deleted(target: Target, uid: str) -> dict[str, Any]:
    """Return the ``metav1.Status`` of a successful deletion."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {**_details(target, target.name), "uid": uid},
    }


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
        **({"reason": reason} if reason else {}),
        "code": code,
    }
    return found if details is None else {**found, "details": dict(details)}

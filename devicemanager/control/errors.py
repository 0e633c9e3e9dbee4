"""Errors of the control API. Each error has an HTTP status, a reason, and an exception that clients
raise."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from msgspec import UNSET

from devicemanager.claims.errors import ClaimsError, DoesNotFit, InvalidObject, TryAgain
from devicemanager.control.shapes import Problem, RpcStatus
from devicemanager.core.errors import (
    AllocationError,
    DeviceManagerError,
    RequestError,
    RpcError,
    StartError,
    StopError,
)
from devicemanager.faults.fault import FaultError
from devicemanager.kubelet.waits import WaitTimeout
from devicemanager.kubelet.wire.errors import WireError
from devicemanager.objects.manifests.errors import ManifestError

__all__ = ["NOT_FOUND", "ControlError", "HttpError", "ServerGone", "error_of", "problem_of"]


class ControlError(DeviceManagerError):
    """Error of a request without a valid response: the control API is not served, the token is
    wrong, or the server failed. The text is one line."""


class ServerGone(ControlError):
    """Error of a request to a server that does not run, or that stopped before it responded."""


class HttpError(Exception):
    """Error that the HTTP server, and not the kubelet, finds in a request, such as an invalid
    query."""

    def __init__(self, status: HTTPStatus, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason


# The reasons are part of the API: clients use them to find the error class. A new error class
# must be above its base class.
_KINDS: Final[tuple[tuple[type[DeviceManagerError], HTTPStatus, str], ...]] = (
    (WaitTimeout, HTTPStatus.GATEWAY_TIMEOUT, "wait-timeout"),
    (ManifestError, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-manifest"),
    (InvalidObject, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-object"),
    (FaultError, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-fault"),
    (DoesNotFit, HTTPStatus.CONFLICT, "does-not-fit"),
    (TryAgain, HTTPStatus.SERVICE_UNAVAILABLE, "undecided"),
    (ClaimsError, HTTPStatus.CONFLICT, "claims-conflict"),
    (AllocationError, HTTPStatus.CONFLICT, "allocation-failed"),
    (RequestError, HTTPStatus.CONFLICT, "conflict"),
    (WireError, HTTPStatus.BAD_GATEWAY, "unreadable-answer"),
    (StartError, HTTPStatus.SERVICE_UNAVAILABLE, "cannot-start"),
    (StopError, HTTPStatus.INTERNAL_SERVER_ERROR, "cannot-stop"),
)
"""HTTP status and reason of each error class. The first class that matches an error is used."""

NOT_FOUND: Final = "not-found"
"""The reason of an error about an object that does not exist."""


def problem_of(error: Exception, *, missing: bool = False) -> Problem:
    """Return the ``Problem`` that describes an error to the client. With ``missing``, a
    RequestError becomes 404 Not Found: the object in the request's path does not exist."""
    if isinstance(error, HttpError):
        return _problem(error.status, error.reason, str(error))
    if isinstance(error, RpcError):
        status = RpcStatus(code=error.code, message=error.description)
        # A plugin's message can contain line breaks, but ``detail`` must be one line.
        text = " ".join(str(error).split())
        return _problem(HTTPStatus.BAD_GATEWAY, "plugin-error", text, rpc_status=status)
    for kind, http_status, reason in _KINDS:
        if isinstance(error, kind):
            if kind is RequestError and missing:
                http_status, reason = HTTPStatus.NOT_FOUND, NOT_FOUND
            # The text of a WaitTimeout has a first line and a report of the events.
            first, _, events = str(error).partition("\n")
            report = f"{first}\n{events}" if events else UNSET
            problems = list(error.lines) if isinstance(error, InvalidObject) else UNSET
            left = list(error.unexamined) if isinstance(error, TryAgain) else UNSET
            return _problem(
                http_status, reason, first, report=report, problems=problems, unexamined=left
            )
    if isinstance(error, DeviceManagerError):
        return _problem(HTTPStatus.INTERNAL_SERVER_ERROR, "failed", " ".join(str(error).split()))
    text = f"unexpected {type(error).__name__}: {error} (a bug)"
    return _problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", " ".join(text.split()))


def _problem(status: HTTPStatus, reason: str, detail: str, **more: object) -> Problem:
    return Problem(
        title=status.phrase,
        status=status.value,
        reason=reason,
        detail=detail,
        **more,  # type: ignore[arg-type]  # the fields of one kind of error, set by the caller
    )


def error_of(problem: Problem) -> Exception:
    """Return the exception that a client raises for an error response (``Problem``).

    ``MockKubelet`` raises the same exception for the same error. An error that only the server has,
    such as a wrong token, becomes a ControlError.
    """
    if problem.problems is not UNSET:
        return InvalidObject(tuple(problem.problems))
    if problem.unexamined is not UNSET:
        return TryAgain(problem.detail, tuple(problem.unexamined))
    if problem.rpc_status is not UNSET:
        return RpcError(problem.rpc_status.code, problem.rpc_status.message)
    text = problem.report if problem.report is not UNSET else problem.detail
    found: Callable[[str], Exception] | None = RequestError if problem.reason == NOT_FOUND else None
    # A newer server can send an unknown reason, which becomes a ControlError.
    for kind, _, reason in _KINDS:
        if reason == problem.reason:
            found = kind
    return ControlError(text) if found is None else found(text)

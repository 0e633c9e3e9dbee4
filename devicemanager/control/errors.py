"""Errors on their way through HTTP: which status and reason each has, and back again."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from msgspec import UNSET

from devicemanager.claims.errors import ClaimsError, InvalidObject
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

__all__ = ["ControlError", "HttpError", "ServerGone", "error_of", "problem_of"]


class ControlError(DeviceManagerError):
    """The control API could not be asked, or it had no answer: nobody serves it, the token is
    wrong, the server failed. The text is one line."""


class ServerGone(ControlError):
    """Nobody serves the control API, or the server ended before it had answered."""


class HttpError(Exception):
    """A request that is wrong whatever the kubelet thinks of it."""

    def __init__(self, status: HTTPStatus, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason


_KINDS: Final[tuple[tuple[type[DeviceManagerError], HTTPStatus, str], ...]] = (
    (WaitTimeout, HTTPStatus.GATEWAY_TIMEOUT, "wait-timeout"),
    (ManifestError, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-manifest"),
    (InvalidObject, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-object"),
    (FaultError, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-fault"),
    (ClaimsError, HTTPStatus.CONFLICT, "claims-conflict"),
    (AllocationError, HTTPStatus.CONFLICT, "allocation-failed"),
    (RequestError, HTTPStatus.CONFLICT, "conflict"),
    (WireError, HTTPStatus.BAD_GATEWAY, "unreadable-answer"),
    (StartError, HTTPStatus.SERVICE_UNAVAILABLE, "cannot-start"),
    (StopError, HTTPStatus.INTERNAL_SERVER_ERROR, "cannot-stop"),
)
"""The first that fits counts."""

NOT_FOUND: Final = "not-found"
"""The reason of a RequestError about something that is not there."""


def problem_of(error: Exception, *, missing: bool = False) -> Problem:
    """What is answered. ``missing``: what the path names is not there."""
    if isinstance(error, HttpError):
        return _problem(error.status, error.reason, str(error))
    if isinstance(error, RpcError):
        said = RpcStatus(code=error.code, message=error.description)
        text = " ".join(str(error).split())
        return _problem(HTTPStatus.BAD_GATEWAY, "plugin-error", text, rpc_status=said)
    for kind, status, reason in _KINDS:
        if isinstance(error, kind):
            if kind is RequestError and missing:
                status, reason = HTTPStatus.NOT_FOUND, NOT_FOUND
            first, _, rest = str(error).partition("\n")
            report = f"{first}\n{rest}" if rest else UNSET
            problems = list(error.lines) if isinstance(error, InvalidObject) else UNSET
            return _problem(status, reason, first, report=report, problems=problems)
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
        **more,  # type: ignore[arg-type]  # those of one kind, as the caller has them
    )


def error_of(problem: Problem) -> Exception:
    """What the same call raises at ``MockKubelet``."""
    if problem.problems is not UNSET:
        return InvalidObject(tuple(problem.problems))
    if problem.rpc_status is not UNSET:
        return RpcError(problem.rpc_status.code, problem.rpc_status.message)
    text = problem.report if problem.report is not UNSET else problem.detail
    found: Callable[[str], Exception] | None = RequestError if problem.reason == NOT_FOUND else None
    for kind, _, reason in _KINDS:
        if reason == problem.reason:
            found = kind
    return ControlError(text) if found is None else found(text)

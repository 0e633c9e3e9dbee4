"""Parse and check the options of list and watch requests.

The rules are those of ``ValidateListOptions`` in k8s.io/apimachinery.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from devicemanager.apiserver.errors import StatusError, invalid
from devicemanager.apiserver.kinds import Kind, Target
from devicemanager.core.printable import printable
from devicemanager.objects.dra import FieldError
from devicemanager.objects.dra.errors import forbidden, unsupported

__all__ = ["check_list", "check_version", "number", "start", "version", "wants_initial_events"]

_MATCH: Final = "resourceVersionMatch"
_INITIAL: Final = "sendInitialEvents"
_NOT_OLDER: Final = "NotOlderThan"
_MATCHES: Final = ("Exact", _NOT_OLDER, "")

_Query = Mapping[str, str]


def number(query: _Query, name: str) -> int:
    """Return the query parameter ``name`` as a number; 0 if the parameter is missing.

    Raises StatusError if the parameter is not a number.
    """
    text = query.get(name) or "0"
    try:
        return int(text)
    except ValueError:
        reason = f'strconv.ParseInt: parsing "{text}": invalid syntax'
        raise StatusError(400, reason) from None


def start(query: _Query) -> int:
    """Return the position in the list at which a page starts. This is the value of the token
    ``continue``, or 0 without a token. Raises StatusError for a token that is not a decimal
    number."""
    text = query.get("continue") or "0"
    if text.isascii() and text.isdecimal():
        return int(text)
    raise StatusError(400, f"continue key is not valid: {printable(text, 40)!r}")


def version(query: _Query) -> int:
    """Return the query parameter ``resourceVersion`` as a number; 0 if the parameter is missing.

    Raises StatusError if the parameter is not a decimal number.
    """
    text = query.get("resourceVersion") or "0"
    if text.isascii() and text.isdecimal():
        return int(text)
    reason = f'strconv.ParseUint: parsing "{printable(text, 40)}": invalid syntax'
    text = f'resourceVersion: Invalid value: "{printable(text, 40)}": {reason}'
    # As on a real API server, this client error has the status 500.
    raise StatusError(500, text, reason="")


def check_version(query: _Query, current: int) -> None:
    """Raise StatusError if ``resourceVersion`` is invalid or newer than the current version."""
    wanted = version(query)
    if wanted <= current:
        return
    # A real API server waits for 3 s first. The version does not come here either.
    text = "Too large resource version"
    raise StatusError(
        504,
        f"Timeout: {text}: {wanted}, current: {current}",
        reason="Timeout",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": text}],
            "retryAfterSeconds": 1,
        },
    )


def wants_initial_events(query: _Query, *, watch_list: bool) -> bool | None:
    """Return the option ``sendInitialEvents`` of a watch; None if it is missing.

    ``watch_list``: True if the feature gate WatchList is on. Raises StatusError if the options
    contradict each other.
    """
    match, given = query.get(_MATCH), query.get(_INITIAL)
    if given is not None:
        if broken := _broken_initial_events(match, watch_list=watch_list):
            raise _rejected(*broken)
        return given in ("1", "true")
    if match:
        text = f"{_MATCH} is forbidden for watch unless {_INITIAL} is provided"
        raise _rejected(forbidden(_MATCH, text))
    return None


def _broken_initial_events(match: str | None, *, watch_list: bool) -> list[FieldError]:
    found = []
    if match != _NOT_OLDER:
        text = f"{_INITIAL} requires setting {_MATCH} to {_NOT_OLDER}"
        found.append(forbidden(_MATCH, text))
        if match:
            found.append(unsupported(_MATCH, match, [_NOT_OLDER]))
    if not watch_list:
        text = f"{_INITIAL} is forbidden for watch unless the WatchList feature gate is enabled"
        found.append(forbidden(_INITIAL, text))
    return found


def check_list(query: _Query, current: int) -> None:
    """Raise StatusError if a list request has an invalid option.

    ``current``: the newest resource version on the server.
    """
    if _INITIAL in query:
        raise _rejected(forbidden(_INITIAL, f"{_INITIAL} is forbidden for list"))
    match = query.get(_MATCH, "")
    if match and not query.get("resourceVersion"):
        text = f"{_MATCH} is forbidden unless resourceVersion is provided"
        raise _rejected(forbidden(_MATCH, text))
    if match not in _MATCHES:
        raise _rejected(unsupported(_MATCH, match, _MATCHES))
    number(query, "timeoutSeconds")
    try:
        check_version(query, current)
    except StatusError as error:
        if error.code != 500:
            raise
        raise StatusError(400, f"invalid resource version: {error.message}") from None


def _rejected(*errors: FieldError) -> StatusError:
    options = Kind("meta.k8s.io", "v1", "listoptions", "ListOptions")
    return invalid(Target(options), "", errors)

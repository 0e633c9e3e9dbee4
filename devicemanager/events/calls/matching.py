"""Finding calls by criteria, and saying how the closest one differs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs

from devicemanager.core.errors import DeviceManagerError, RequestError
from devicemanager.core.printable import printable
from devicemanager.events.calls.call import OK, Call
from devicemanager.events.calls.rendering import RPCS

__all__ = ["CallFilter", "CallMismatch", "mismatch"]

CODES = (
    OK, "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound",
    "AlreadyExists", "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted",
    "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated",
)  # fmt: skip
_SHOWN_CALLS = 10

_Difference = tuple[str, int]
"""A line for people, and how many values are not as wanted."""


class CallMismatch(DeviceManagerError, AssertionError):
    """The calls are not those that were asserted; the text says what was called instead."""


def _one_of(known: Collection[str], what: str) -> Any:
    def check(_: object, __: object, value: str | None) -> None:
        if value is not None and value not in known:
            names = ", ".join(known)
            raise RequestError(f"there is no {what} {value!r}: choose from {names}")

    return check


def _ids(given: Collection[str] | None) -> frozenset[str] | None:
    if isinstance(given, str):
        raise RequestError(f"device_ids is a set of ids, such as {{{given!r}}}")
    return None if given is None else frozenset(given)


@attrs.frozen
class CallFilter:
    """What is asked of a call; None for what is not. Raises RequestError for an RPC or a code
    that there is not."""

    resource: str | None = None
    rpc: str | None = attrs.field(default=None, validator=_one_of(RPCS, "RPC"))
    plugin: str | None = None
    device_ids: frozenset[str] | None = attrs.field(default=None, converter=_ids)
    request: Mapping[str, Any] | None = None
    response: Mapping[str, Any] | None = None
    code: str | None = attrs.field(default=None, validator=_one_of(CODES, "status code"))

    def matching(self, calls: Sequence[Call]) -> list[Call]:
        """Those that meet all criteria."""
        # Data is made of a message only if everything else is right.
        return [
            call
            for call in calls
            if (self.rpc is None or call.rpc == self.rpc)
            and (self.resource is None or call.resource == self.resource)
            and not self.differences(call)
        ]

    def differences(self, call: Call) -> list[str]:
        """How a call fails each criterion that it fails, a line each."""
        return [text for text, _ in self._unmet(call)]

    def distance(self, call: Call) -> tuple[bool, bool, int]:
        """How far a call is from this: another RPC is farther than another resource, and that
        farther than any number of ids and values that are not as wanted."""
        wrong_rpc = self.rpc is not None and self.rpc != call.rpc
        wrong_resource = self.resource is not None and self.resource != call.resource
        return wrong_rpc, wrong_resource, sum(values for _, values in self._unmet(call))

    def _unmet(self, call: Call) -> Iterator[_Difference]:
        for name, wanted, actual in (
            ("rpc", self.rpc, call.rpc),
            ("resource", self.resource, call.resource),
            ("plugin", self.plugin, call.plugin),
            ("code", self.code, call.code),
        ):
            if wanted is not None and wanted != actual:
                yield f"{name} is {actual!r}, not {wanted!r}", 1
        if self.device_ids is not None and self.device_ids != call.device_ids:
            yield _set_difference(self.device_ids, call.device_ids)
        if self.request is not None:
            yield from _data_differences("request", self.request, call.request)
        if self.response is not None:
            yield from _data_differences("response", self.response, call.response)

    def __str__(self) -> str:
        parts = [
            f"{name}={set(value) if isinstance(value, frozenset) else value!r}"
            for name, value in attrs.asdict(self, recurse=False).items()
            if value is not None
        ]
        return f"call({', '.join(parts)})"


def _set_difference(wanted: frozenset[str], actual: frozenset[str]) -> _Difference:
    parts = []
    if missing := wanted - actual:
        parts.append(f"without {', '.join(sorted(missing))}")
    if more := actual - wanted:
        parts.append(f"with {', '.join(sorted(more))} besides")
    return f"device_ids: {'; '.join(parts)}", len(missing) + len(more)


def _data_differences(where: str, wanted: Any, actual: Any) -> Iterator[_Difference]:
    """Each place where ``actual`` has not what ``wanted`` says."""
    if isinstance(wanted, Mapping) and isinstance(actual, Mapping):
        for key, value in wanted.items():
            if key in actual:
                yield from _data_differences(f"{where}.{key}", value, actual[key])
            else:
                yield f"{where} has no {key!r}", _values(value)
    elif isinstance(wanted, (list, tuple)) and isinstance(actual, list):
        if len(wanted) != len(actual):
            values = _values(wanted[len(actual) :])
            yield f"{where} has {len(actual)} elements, not {len(wanted)}", values
        for number, (one, other) in enumerate(zip(wanted, actual, strict=False)):
            yield from _data_differences(f"{where}[{number}]", one, other)
    elif wanted != actual:
        yield f"{where} is {actual!r}, not {wanted!r}", _values(wanted)


def _values(data: Any) -> int:
    """How many values there are in data at whatever depth, and the objects and lists around
    them: what has not even these is farther away."""
    match data:
        case Mapping():
            return 1 + sum(map(_values, data.values()))
        case list() | tuple():
            return 1 + sum(map(_values, data))
        case _:
            return 1


def mismatch(
    criteria: CallFilter,
    found: Sequence[Call],
    calls: Sequence[Call],
    times: int | None,
    not_kept: str,
) -> CallMismatch:
    """The error for calls that are not as asserted; ``times`` None for at least one.
    ``not_kept`` says what calls there may have been besides."""
    wanted = "one or more" if times is None else str(times)
    lines = [f"wanted {wanted} of {criteria}, found {len(found)} among {len(calls)} calls"]
    if not_kept:
        lines.append(f"({not_kept})")
    if found:
        lines += _list("found:", found)
    elif calls:
        closest = min(reversed(calls), key=criteria.distance)
        lines += ["the closest:", f"  {closest}"]
        lines += [f"    {difference}" for difference in criteria.differences(closest)]
        lines += _list("all calls:", calls)
    return CallMismatch("\n".join(printable(line) for line in lines))


def _list(title: str, calls: Sequence[Call]) -> list[str]:
    left_out = len(calls) - _SHOWN_CALLS
    lines = [title] + ([f"  ({left_out} earlier)"] if left_out > 0 else [])
    return lines + [f"  {call}" for call in calls[-_SHOWN_CALLS:]]

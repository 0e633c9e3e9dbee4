"""Search a call log, and explain how a call differs from the search criteria.

``CallQueries`` is the public interface: call it to find calls, or use its ``assert_`` methods.
``CallLog`` implements it for a kubelet in this process, and the client of the control API for a
kubelet in another process. ``CallFilter`` has the criteria of a search. A failed assertion raises
``CallMismatch``. Its text shows the calls found, or the most similar call and its differences.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypedDict, Unpack

import attrs

from devicemanager.core.errors import DeviceManagerError, RequestError
from devicemanager.core.printable import printable
from devicemanager.events.calls.call import OK, Call

_CODES = (
    OK, "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound",
    "AlreadyExists", "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted",
    "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated",
)  # fmt: skip
_SHOWN_CALLS = 10

_Difference = tuple[str, int]
"""A line for people, and the number of values that differ."""


class CallMismatch(DeviceManagerError, AssertionError):
    """Failed assertion about calls; its text shows the calls that were made."""


@attrs.frozen
class Mark:
    """A moment in the history of a kubelet; waits and searches accept it as ``since``."""

    event: int
    """Number of the latest event at the time of the mark."""
    call: int
    """Number of the latest call that had ended at the time of the mark."""


class CallCriteria(TypedDict, total=False):
    """Search criteria for calls. A criterion that is None or missing matches every call."""

    rpc: str | None
    """Method name, such as ``Allocate``."""
    plugin: str | None
    """The plugin's endpoint, as in ``Call.plugin``."""
    device_ids: Collection[str] | None
    """IDs of all devices that the request names, no more and no fewer."""
    request: Mapping[str, Any] | None
    """Values that ``Call.request`` must have. An object may have more keys; a list must have
    exactly these elements."""
    response: Mapping[str, Any] | None
    """Values that ``Call.response`` must have, compared as for ``request``."""
    code: str | None
    """Status code as Go spells it, such as ``DeadlineExceeded``."""


def _check_rpc(_: object, __: object, rpc: str | None) -> None:
    if rpc is not None:
        # Imported here: a search loads the protobuf messages, a kubelet's start does not.
        from devicemanager.events.calls.rendering import RPCS

        _check_name("RPC", rpc, RPCS)


def _check_code(_: object, __: object, code: str | None) -> None:
    if code is not None:
        _check_name("status code", code, _CODES)


def _check_name(what: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        raise RequestError(f"unknown {what} {name!r}: use one of {', '.join(names)}")


def _ids(given: Collection[str] | None) -> frozenset[str] | None:
    # A string would pass as a collection of IDs with one character each.
    if isinstance(given, str):
        raise RequestError(f"invalid device_ids {given!r}: use a set of ids, such as {{{given!r}}}")
    return None if given is None else frozenset(given)


@attrs.frozen(eq=False, repr=False)
class CallFilter:
    """Search criteria for calls, with the fields of ``CallCriteria`` and the resource.

    Raises RequestError for an unknown RPC or status code, and if ``device_ids`` is a string.
    """

    resource: str | None = None
    rpc: str | None = attrs.field(default=None, validator=_check_rpc)
    plugin: str | None = None
    device_ids: frozenset[str] | None = attrs.field(default=None, converter=_ids)
    request: Mapping[str, Any] | None = None
    response: Mapping[str, Any] | None = None
    code: str | None = attrs.field(default=None, validator=_check_code)

    def matching(self, calls: Sequence[Call]) -> list[Call]:
        """Return those of ``calls`` that meet all criteria, in the same order."""
        # RPC and resource are compared first: the other criteria can require decoding a message.
        return [
            call
            for call in calls
            if (self.rpc is None or call.rpc == self.rpc)
            and (self.resource is None or call.resource == self.resource)
            and not self.differences(call)
        ]

    def differences(self, call: Call) -> list[str]:
        """Return one line for each difference between a call and the criteria."""
        return [text for text, _ in self._differences(call)]

    def distance(self, call: Call) -> tuple[bool, bool, int]:
        """Return a sort key for calls; the smallest is the call closest to the criteria.

        A call of the wrong RPC is farther than every call of the right RPC. Among calls of the
        right RPC, a wrong resource counts more than any number of other wrong values.
        """
        wrong_rpc = self.rpc is not None and self.rpc != call.rpc
        wrong_resource = self.resource is not None and self.resource != call.resource
        return wrong_rpc, wrong_resource, sum(values for _, values in self._differences(call))

    def _differences(self, call: Call) -> Iterator[_Difference]:
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


class CallQueries(ABC):
    """A searchable log of calls."""

    @property
    @abstractmethod
    def latest(self) -> int:
        """Number of the latest call; 0 before the first."""

    @property
    @abstractmethod
    def dropped(self) -> int:
        """Number of calls that are no longer stored."""

    @abstractmethod
    def all(self) -> list[Call]:
        """Return every stored call, in the order of their numbers."""

    @abstractmethod
    def _missing(self) -> str:
        """Describe the calls that are no longer stored, for people; empty if none are missing."""

    def __call__(
        self,
        resource: str | None = None,
        *,
        since: Mark | int = 0,
        **criteria: Unpack[CallCriteria],
    ) -> list[Call]:
        """Return the calls that meet all criteria, in the order in which they ended.

        ``since`` is a mark, or the number of a call: only later calls count. Raises
        RequestError for an unknown RPC or status code.
        """
        return CallFilter(resource, **criteria).matching(self._later(since))

    def assert_called(
        self,
        resource: str | None = None,
        *,
        since: Mark | int = 0,
        times: int | None = None,
        **criteria: Unpack[CallCriteria],
    ) -> list[Call]:
        """Check that at least one call meets the criteria, and return these calls.

        With ``times``, check that exactly this number of calls meets the criteria. Raises
        CallMismatch, an AssertionError. If no call meets the criteria, its text shows the most
        similar call and the differences.
        """
        wanted = CallFilter(resource, **criteria)
        found = wanted.matching(self._later(since))
        if not found if times is None else len(found) != times:
            raise self._mismatch(wanted, found, times, since)
        return found

    def assert_not_called(
        self,
        resource: str | None = None,
        *,
        since: Mark | int = 0,
        **criteria: Unpack[CallCriteria],
    ) -> None:
        """Check that no call meets the criteria. Raises CallMismatch, an AssertionError."""
        self.assert_called(resource, since=since, times=0, **criteria)

    def _later(self, since: Mark | int) -> list[Call]:
        # A number is convenient in the control API; a mark also works for events.
        number = since.call if isinstance(since, Mark) else since
        return [call for call in self.all() if call.number > number]

    def _mismatch(
        self, wanted: CallFilter, found: list[Call], times: int | None, since: Mark | int
    ) -> CallMismatch:
        calls = self._later(since)
        count = "one or more" if times is None else str(times)
        lines = [f"wanted {count} of {wanted}, found {len(found)} among {len(calls)} calls"]
        if missing := self._missing():
            lines.append(f"({missing})")
        if found:
            lines += _list("found:", found)
        elif calls:
            # Reversed: of equally close calls the latest is the most useful.
            closest = min(reversed(calls), key=wanted.distance)
            lines += ["the closest:", f"  {closest}"]
            lines += [f"    {difference}" for difference in wanted.differences(closest)]
            lines += _list("all calls:", calls)
        # Plugins choose device IDs and messages, which can contain control characters.
        return CallMismatch("\n".join(printable(line) for line in lines))


def _list(title: str, calls: Sequence[Call]) -> list[str]:
    left_out = len(calls) - _SHOWN_CALLS
    lines = [title] + ([f"  ({left_out} earlier)"] if left_out > 0 else [])
    return lines + [f"  {call}" for call in calls[-_SHOWN_CALLS:]]


def _set_difference(wanted: frozenset[str], actual: frozenset[str]) -> _Difference:
    parts = []
    if missing := wanted - actual:
        parts.append(f"missing {', '.join(sorted(missing))}")
    if extra := actual - wanted:
        parts.append(f"unexpected {', '.join(sorted(extra))}")
    return f"device_ids: {'; '.join(parts)}", len(missing) + len(extra)


def _data_differences(where: str, wanted: Any, actual: Any) -> Iterator[_Difference]:
    """Yield each value of ``wanted`` that ``actual`` lacks or contradicts, as a line for people
    and the number of values that differ."""
    if isinstance(wanted, Mapping) and isinstance(actual, Mapping):
        # Further keys of ``actual`` are allowed: a test names only the values that it is about.
        for key, value in wanted.items():
            if key in actual:
                yield from _data_differences(f"{where}.{key}", value, actual[key])
            else:
                yield f"{where} has no {key!r}", _values(value)
    elif isinstance(wanted, (list, tuple)) and isinstance(actual, list):
        if len(wanted) != len(actual):
            values = _values(wanted[len(actual) :])
            yield f"{where} has {len(actual)} elements, not {len(wanted)}", values
        # The common elements count, too: a list that only lacks its end is closer than another one.
        for number, (one, other) in enumerate(zip(wanted, actual, strict=False)):
            yield from _data_differences(f"{where}[{number}]", one, other)
    elif wanted != actual:
        yield f"{where} is {actual!r}, not {wanted!r}", _values(wanted)


def _values(data: Any) -> int:
    """Count the values in data at any depth, and the objects and lists that contain them.

    Objects count so that a call that lacks an object is farther from the criteria than a call
    that has the object with different values.
    """
    match data:
        case Mapping():
            return 1 + sum(map(_values, data.values()))
        case list() | tuple():
            return 1 + sum(map(_values, data))
        case _:
            return 1

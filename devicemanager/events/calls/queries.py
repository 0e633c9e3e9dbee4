"""Asking a record of calls, wherever it is kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import attrs

from devicemanager.events.calls.call import Call

if TYPE_CHECKING:
    from devicemanager.events.calls.matching import CallFilter

__all__ = ["CallQueries", "Mark"]


@attrs.frozen
class Mark:
    """A moment among the events and calls of a kubelet, for ``since=``."""

    event: int
    """The number of the latest event before it."""
    call: int
    """The number of the latest call that had ended before it."""


class CallQueries(ABC):
    """What can be asked of a record of calls; whoever inherits has the calls."""

    @property
    @abstractmethod
    def latest(self) -> int:
        """The number of the latest call; 0 before the first."""

    @property
    @abstractmethod
    def dropped(self) -> int:
        """How many calls are not kept any more."""

    @abstractmethod
    def all(self) -> list[Call]:
        """Every call that is kept, in the order of their numbers."""

    @abstractmethod
    def _not_kept(self) -> str:
        """What is not there any more, for people; empty if everything is."""

    def __call__(
        self,
        resource: str | None = None,
        *,
        rpc: str | None = None,
        plugin: str | None = None,
        device_ids: Collection[str] | None = None,
        request: Mapping[str, Any] | None = None,
        response: Mapping[str, Any] | None = None,
        code: str | None = None,
        since: Mark | int = 0,
    ) -> list[Call]:
        """The calls that meet all criteria given, in the order in which they ended.

        ``device_ids`` are exactly the devices that the request names. ``request`` and
        ``response`` are parts of what ``Call.request`` and ``Call.response`` show: an object
        has at least these keys, a list just these elements. ``since`` is a mark, or the number
        of a call: only later ones count.

        Raises RequestError for an RPC or a status code that there is not.
        """
        criteria = self._criteria(resource, rpc, plugin, device_ids, request, response, code)
        return criteria.matching(self._later(since))

    def assert_called(
        self,
        resource: str | None = None,
        *,
        rpc: str | None = None,
        plugin: str | None = None,
        device_ids: Collection[str] | None = None,
        request: Mapping[str, Any] | None = None,
        response: Mapping[str, Any] | None = None,
        code: str | None = None,
        since: Mark | int = 0,
        times: int | None = None,
    ) -> list[Call]:
        """There are such calls, and ``times`` of them if that is given; returns them. The
        criteria are those of a call of this object.

        Raises CallMismatch, an AssertionError, that shows the closest call and where it
        differs.
        """
        criteria = self._criteria(resource, rpc, plugin, device_ids, request, response, code)
        found = criteria.matching(self._later(since))
        if not found if times is None else len(found) != times:
            self._fail(criteria, found, times, since)
        return found

    def assert_not_called(
        self,
        resource: str | None = None,
        *,
        rpc: str | None = None,
        plugin: str | None = None,
        device_ids: Collection[str] | None = None,
        request: Mapping[str, Any] | None = None,
        response: Mapping[str, Any] | None = None,
        code: str | None = None,
        since: Mark | int = 0,
    ) -> None:
        """There is no such call. Raises CallMismatch, an AssertionError, that shows them."""
        criteria = self._criteria(resource, rpc, plugin, device_ids, request, response, code)
        found = criteria.matching(self._later(since))
        if found:
            self._fail(criteria, found, 0, since)

    def _later(self, since: Mark | int) -> list[Call]:
        number = since.call if isinstance(since, Mark) else since
        return [call for call in self.all() if call.number > number]

    @staticmethod
    def _criteria(*given: Any) -> CallFilter:
        from devicemanager.events.calls.matching import CallFilter

        return CallFilter(*given)

    def _fail(
        self, criteria: CallFilter, found: list[Call], times: int | None, since: Mark | int
    ) -> NoReturn:
        from devicemanager.events.calls.matching import mismatch

        raise mismatch(criteria, found, self._later(since), times, self._not_kept())

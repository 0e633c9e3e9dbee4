"""The waits of ``MockKubelet``, each for threads and for event loops."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

from devicemanager.events.calls.call import Call
from devicemanager.events.calls.matching import Mark
from devicemanager.events.stream import Event, EventKind
from devicemanager.kubelet.call_assertions import Expected
from devicemanager.kubelet.log_watch import Entry
from devicemanager.kubelet.waiting import Waits

__all__ = ["KubeletWaits"]

Step = Expected | EventKind | str


class KubeletWaits:
    """Ends a wait when what it waits for happens; one that fails says what did happen."""

    _waits: Waits

    def mark(self) -> Mark:
        """This moment among the events and calls: take it before you do something, and give
        it as ``since`` to what waits for or looks at the consequences.

        A call is on record once it has ended: a plugin's Register may come after a mark that
        was taken when its devices were counted already. So name the RPC you mean."""
        return self._waits.mark(None)

    def wait_for_resource(
        self, resource: str, count: int | None = None, timeout: float = 10.0
    ) -> None:
        """Wait until ``count`` devices of the resource are allocatable (None: any).

        A resource that no plugin has registered has no count, not even 0. Raises
        WaitTimeout after ``timeout`` seconds, with what did happen, and RequestError at
        once for a name that no plugin can register and for what is no number of devices.
        """
        self._waits.resource(resource, count, timeout)

    async def wait_for_resource_async(
        self, resource: str, count: int | None = None, timeout: float = 10.0
    ) -> None:
        """``wait_for_resource`` for asyncio: it does not block the loop."""
        await self._waits.resource_async(resource, count, timeout)

    def wait_for(
        self, condition: Callable[[], bool], timeout: float = 10.0, what: str = "the condition"
    ) -> None:
        """Wait until ``condition()`` holds; it is looked at again after every event.

        Raises WaitTimeout after ``timeout`` seconds, with what did happen.
        """
        self._waits.condition(condition, timeout, what)

    async def wait_for_async(
        self, condition: Callable[[], bool], timeout: float = 10.0, what: str = "the condition"
    ) -> None:
        """``wait_for`` for asyncio: it does not block the loop. The condition is called on
        another thread."""
        await self._waits.condition_async(condition, timeout, what)

    def wait_for_event(
        self,
        *kinds: EventKind | str,
        resource: str | None = None,
        pod: str | None = None,
        text: str | re.Pattern[str] | None = None,
        where: Callable[[Event], bool] | None = None,
        since: Mark | int | None = None,
        after: int | None = None,
        timeout: float = 10.0,
    ) -> Event:
        """Wait for the next event of one of these kinds (none given: of any) and return it.

        It is of this resource and pod (a UID), its message contains ``text`` or matches the
        pattern, and ``where(event)`` holds, as far as these are given.

        Only events later than this call count. With ``since``, all that are later than a
        ``mark`` that was taken before, or than the event of that number; ``after`` is the
        same for a number: 0 is for everything since the kubelet was made.

        Raises WaitTimeout after ``timeout`` seconds, with what did happen, and RequestError
        for a kind that there is not.
        """
        step = Expected.event(
            *kinds, resource=resource, pod=pod, text=text, where=where, within=timeout
        )
        (found,) = self._waits.sequence([step], self._waits.mark(since, after))
        return cast(Event, found)

    async def wait_for_event_async(
        self,
        *kinds: EventKind | str,
        resource: str | None = None,
        pod: str | None = None,
        text: str | re.Pattern[str] | None = None,
        where: Callable[[Event], bool] | None = None,
        since: Mark | int | None = None,
        timeout: float = 10.0,
    ) -> Event:
        """``wait_for_event`` for asyncio: it does not block the loop."""
        step = Expected.event(
            *kinds, resource=resource, pod=pod, text=text, where=where, within=timeout
        )
        (found,) = await self._waits.sequence_async([step], self._waits.mark(since))
        return cast(Event, found)

    def wait_for_call(
        self,
        resource: str | None = None,
        *,
        rpc: str | None = None,
        plugin: str | None = None,
        device_ids: Collection[str] | None = None,
        request: Mapping[str, Any] | None = None,
        response: Mapping[str, Any] | None = None,
        code: str | None = None,
        where: Callable[[Call], bool] | None = None,
        since: Mark | None = None,
        timeout: float = 10.0,
    ) -> Call:
        """Wait for the next call that meets these criteria and ends after this moment, or
        after the mark ``since``, and return it. The criteria are those of ``calls``.

        Raises WaitTimeout after ``timeout`` seconds, with what did happen.
        """
        step = Expected.call(
            resource,
            rpc=rpc,
            plugin=plugin,
            device_ids=device_ids,
            request=request,
            response=response,
            code=code,
            where=where,
            within=timeout,
        )
        (found,) = self._waits.sequence([step], self._waits.mark(since))
        return cast(Call, found)

    def expect(self, *steps: Step, since: Mark | None = None) -> list[Entry]:
        """Wait until all this has happened, in this order, and return it.

        Each step is the name of an event's kind (``registered``) or of an RPC (``Allocate``),
        or an ``Expected`` with more criteria and a limit of its own, which begins when the
        step before it was found. Other events and calls may come in between. What was
        before this call does not count, or before the mark ``since``.

        Raises WaitTimeout for the first step that did not happen in time, with what did,
        and RequestError for a name that is none.
        """
        return self._waits.sequence([*map(Expected.of, steps)], self._waits.mark(since))

    async def expect_async(self, *steps: Step, since: Mark | None = None) -> list[Entry]:
        """``expect`` for asyncio: it does not block the loop."""
        wanted = [*map(Expected.of, steps)]
        return await self._waits.sequence_async(wanted, self._waits.mark(since))

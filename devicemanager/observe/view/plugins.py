"""Build the plugin views of a kubelet: the ListAndWatch streams and the latest calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from devicemanager.core.endpoints import EndpointInfo
from devicemanager.events.calls.call import Call
from devicemanager.events.calls.log import CallInProgress, CallLog
from devicemanager.kubelet.manager.state_snapshot import ManagerSnapshot
from devicemanager.observe.view.reuse import reuse_equal, reuse_unchanged
from devicemanager.observe.view.values import LastCall, Pending, PluginView, Stream

__all__ = ["LATEST_CALLS", "Plugins"]

LATEST_CALLS = 8
"""Maximum number of calls per plugin in a view. A view contains the latest calls."""

# Maximum number of plugins whose calls are stored, because one plugin can register many names.
_MOST_PLUGINS = 1024

_LIST_AND_WATCH = "ListAndWatch"

# Resource and endpoint.
_Key = tuple[str | None, str]


class Plugins:
    """Builder of the field ``NodeView.plugins``."""

    def __init__(self, calls: CallLog) -> None:
        self._log = calls
        # Number of the last call that was read; the log is read only forward.
        self._last = 0
        self._calls: dict[_Key, deque[LastCall]] = {}
        self._views: tuple[PluginView, ...] = ()

    def refresh(self, snapshot: ManagerSnapshot | None) -> tuple[PluginView, ...]:
        """Return the views of all plugins, reusing the objects of unchanged plugins. ``snapshot``
        is None while the kubelet is stopped; the result is then empty."""
        self._read_calls()
        before = {(view.resource, view.endpoint, view.stream): view for view in self._views}
        views = [
            reuse_equal(before.get((view.resource, view.endpoint, view.stream)), view)
            for view in (() if snapshot is None else self._all(snapshot))
        ]
        self._views = reuse_unchanged(self._views, views)
        return self._views

    def _read_calls(self) -> None:
        for call in self._log.later(self._last):
            self._last = call.number
            key = call.resource, call.plugin
            latest = self._calls.pop(key, None) or deque(maxlen=LATEST_CALLS)
            latest.append(_last_call(call))
            # Inserted again at the end, so that the plugin with the oldest latest call is first.
            self._calls[key] = latest
        # A dict keeps the order of insertion, so the first key is removed.
        while len(self._calls) > _MOST_PLUGINS:
            del self._calls[next(iter(self._calls))]

    def _all(self, snapshot: ManagerSnapshot) -> Iterator[PluginView]:
        pending: dict[_Key, list[CallInProgress]] = {}
        for call in self._log.in_progress:
            pending.setdefault((call.resource, call.plugin), []).append(call)
        standby: dict[str, list[EndpointInfo]] = {}
        # In reverse order of registration, so that the newest plugin is shown first.
        for endpoint in reversed(snapshot.connected):
            if snapshot.serving.get(endpoint.resource) is not endpoint:
                standby.setdefault(endpoint.resource, []).append(endpoint)
        connected = {endpoint.id for endpoint in snapshot.connected}
        for resource, endpoint in snapshot.serving.items():
            stream = Stream.SERVING if endpoint.id in connected else Stream.ENDED
            if not endpoint.id:  # restored from the checkpoint, not registered since
                stream = Stream.AWAITED
            yield self._view(endpoint, stream, pending)
            for other in standby.get(resource, ()):
                yield self._view(other, Stream.STANDBY, pending)

    def _view(
        self, endpoint: EndpointInfo, stream: Stream, pending: dict[_Key, list[CallInProgress]]
    ) -> PluginView:
        key = endpoint.resource, endpoint.name
        calls = pending.get(key, ())
        return PluginView(
            endpoint.resource,
            endpoint.name,
            stream,
            _lists(calls),
            endpoint.options.pre_start_required,
            endpoint.options.get_preferred_allocation_available,
            tuple(self._calls.get(key, ())),
            # ListAndWatch is always in progress; the field ``stream`` has its state.
            tuple([Pending(c.time, c.rpc) for c in calls if c.rpc != _LIST_AND_WATCH]),
        )


def _lists(pending: Iterable[CallInProgress]) -> int:
    return max((call.received for call in pending if call.rpc == _LIST_AND_WATCH), default=0)


def _last_call(call: Call) -> LastCall:
    return LastCall(
        call.number,
        call.time,
        call.rpc,
        call.code,
        call.message,
        call.duration,
        call.stream_message,
    )

"""Pictures of a ``MockKubelet``, one after another, each for the price of what changed."""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs

from devicemanager.core.errors import RequestError, StartError
from devicemanager.core.ids import ResourceName
from devicemanager.core.inventory import DeviceList
from devicemanager.kubelet.manager.state_snapshot import ManagerSnapshot
from devicemanager.kubelet.pods.pod_info import PodClaims
from devicemanager.observe.view.devices import Holders, Layouts, resource_view
from devicemanager.observe.view.plugins import Plugins
from devicemanager.observe.view.pods import Pods
from devicemanager.observe.view.reuse import kept, reuse_unchanged
from devicemanager.observe.view.values import NodeView, ResourceView

if TYPE_CHECKING:
    from devicemanager.kubelet.mock import MockKubelet

__all__ = ["KubeletView"]

LATEST_EVENTS = 200
"""So many events are shown."""


class KubeletView:
    """Looks at a kubelet. May be asked from any thread; costs whoever admits nothing but the
    lock's time of one step for each resource, plugin and pod."""

    def __init__(self, kubelet: MockKubelet) -> None:
        self._kubelet = kubelet
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._resources = _Resources()
        self._plugins = Plugins(kubelet.calls)
        self._pods = Pods(kubelet.pod_store, self._claims_of)
        settings = kubelet.settings
        self._picture = NodeView(
            0,
            f"mock kubelet at {kubelet.root}",
            settings.node_name,
            settings.kubelet_version,
            policy=settings.topology_policy,
            scope=settings.topology_scope,
            plugins=(),
            events=(),
        )

    def look(self) -> NodeView:
        """The node as it is now: the picture before, if nothing has changed since."""
        with self._lock:
            before = self._picture
            # First: what happens after that is seen by the next look at the latest.
            events = self._kubelet.events.recent()[-LATEST_EVENTS:]
            seen = self._snapshot()
            resources = self._resources.look(seen)
            picture = attrs.evolve(
                before,
                serving=seen is not None,
                numa_nodes=self._numa_nodes(resources),
                resources=resources,
                plugins=self._plugins.look(seen),
                pods=self._pods.refresh({} if seen is None else seen.held),
                events=before.events if _is_tail(before.events, events) else events,
            )
            if picture.numa_nodes != before.numa_nodes or any(
                map(operator.is_not, _parts(before), _parts(picture))
            ):
                self._picture = attrs.evolve(picture, revision=before.revision + 1)
            return self._picture

    def _snapshot(self) -> ManagerSnapshot | None:
        try:
            return self._kubelet.manager.snapshot()
        except RequestError:  # it is stopped
            return None

    def _numa_nodes(self, resources: Iterable[ResourceView]) -> tuple[int, ...]:
        settings = self._kubelet.settings
        # Without a machine's nodes the topology manager takes those that devices name.
        nodes = set() if settings.topology_grows else set(settings.topology.nodes)
        nodes.update(
            node for resource in resources for node in resource.layout.by_node if node is not None
        )
        return tuple(sorted(nodes))

    def _claims_of(self, uid: str) -> PodClaims:
        try:
            return self._kubelet.claim_devices(uid)
        except (RequestError, StartError):  # the pod is gone by now
            return {}


class _Resources:
    """The resources as of the last look."""

    def __init__(self) -> None:
        self._holders = Holders()
        self._layouts = Layouts()
        self._seen: ManagerSnapshot | None = None
        self._views: dict[ResourceName, ResourceView] = {}
        self._all: tuple[ResourceView, ...] = ()

    def look(self, seen: ManagerSnapshot | None) -> tuple[ResourceView, ...]:
        if seen is None:
            seen = ManagerSnapshot({}, {}, (), {}, ())
        touched = self._holders.update(seen.held) | self._reserved_anew(seen)
        connected = {endpoint.id for endpoint in seen.connected}
        views = {}
        for name in sorted(seen.lists.keys() | self._holders.resources()):
            devices = seen.lists.get(name)
            endpoint = seen.serving.get(name)
            is_connected = endpoint is not None and endpoint.id in connected
            before = self._views.get(name)
            if before is None or name in touched or self._differs(name, devices, is_connected):
                view = resource_view(
                    name, devices, is_connected, self._holders, seen.reserved, self._layouts
                )
                before = kept(before, view)
            assert before is not None
            views[name] = before
        self._layouts.keep_only(views)
        self._seen, self._views = seen, views
        self._all = reuse_unchanged(self._all, views.values())
        return self._all

    def _differs(self, name: ResourceName, devices: DeviceList | None, connected: bool) -> bool:
        before = None if self._seen is None else self._seen.lists.get(name)
        return before is not devices or self._views[name].connected != connected

    def _reserved_anew(self, seen: ManagerSnapshot) -> set[ResourceName]:
        before = () if self._seen is None else self._seen.reserved
        if before == seen.reserved:
            return set()
        return {resource for _, resource, _ in (*before, *seen.reserved)}


def _parts(picture: NodeView) -> tuple[object, ...]:
    return (
        picture.serving,
        picture.resources,
        picture.plugins,
        picture.pods,
        picture.events,
    )


def _is_tail(before: tuple[object, ...] | None, after: tuple[object, ...]) -> bool:
    """Whether these are the same events, the latest of which tells."""
    if before is None or len(before) != len(after):
        return False
    return not before or before[-1] is after[-1]

"""Build views of a ``MockKubelet``. The cost of a view depends on the changes since the previous
one."""

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
from devicemanager.observe.view.dra import Dra
from devicemanager.observe.view.plugins import Plugins
from devicemanager.observe.view.pods import Pods
from devicemanager.observe.view.reuse import reuse_equal, reuse_unchanged
from devicemanager.observe.view.values import NodeView, ResourceView

if TYPE_CHECKING:
    from devicemanager.kubelet.mock import MockKubelet

__all__ = ["KubeletView"]

LATEST_EVENTS = 200
"""Maximum number of events in a view. A view contains the latest events."""


class KubeletView:
    """Builder of views of one mock kubelet. Thread-safe.

    It holds the kubelet's lock only for short steps, so admissions are not delayed.
    """

    def __init__(self, kubelet: MockKubelet) -> None:
        self._kubelet = kubelet
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._resources = _Resources()
        self._plugins = Plugins(kubelet.calls)
        self._pods = Pods(kubelet.pod_store, self._claims_of)
        self._dra = Dra(kubelet.dra_status)
        settings = kubelet.settings
        self._view = NodeView(
            0,
            f"mock kubelet at {kubelet.root}",
            settings.node_name,
            settings.kubelet_version,
            policy=settings.topology_policy,
            scope=settings.topology_scope,
            plugins=(),
            events=(),
        )

    def refresh(self) -> NodeView:
        """Return the current view. If nothing has changed, return the previous view object."""
        with self._lock:
            before = self._view
            # One lock for the whole view, because its parts reuse state of the previous view.
            # Events are read first: a later event wakes the observer for another refresh.
            # In the other order, a view could contain an event without its effect.
            events = self._kubelet.events.recent()[-LATEST_EVENTS:]
            snapshot = self._snapshot()
            resources = self._resources.refresh(snapshot)
            view = attrs.evolve(
                before,
                serving=snapshot is not None,
                numa_nodes=self._numa_nodes(resources),
                resources=resources,
                plugins=self._plugins.refresh(snapshot),
                pods=self._pods.refresh({} if snapshot is None else snapshot.held),
                dra=self._dra.refresh(),
                events=before.events if _is_same_tail(before.events, events) else events,
            )
            if view.numa_nodes != before.numa_nodes or any(
                map(operator.is_not, _parts(before), _parts(view))
            ):
                self._view = attrs.evolve(view, revision=before.revision + 1)
            return self._view

    def _snapshot(self) -> ManagerSnapshot | None:
        # One consistent snapshot for resources, plugins and pods. Separate reads could show a
        # device as allocated to a pod that does not have it.
        try:
            return self._kubelet.manager.snapshot()
        except RequestError:  # the kubelet is stopped
            return None

    def _numa_nodes(self, resources: Iterable[ResourceView]) -> tuple[int, ...]:
        settings = self._kubelet.settings
        # NUMA nodes of devices are added, because a plugin may name nodes that the machine lacks.
        # Without configured NUMA nodes, the Topology Manager uses the nodes of the devices.
        nodes = set() if settings.topology_grows else set(settings.topology.nodes)
        nodes.update(
            node for resource in resources for node in resource.layout.by_node if node is not None
        )
        return tuple(sorted(nodes))

    def _claims_of(self, uid: str) -> PodClaims:
        try:
            return self._kubelet.claim_devices(uid)
        except (RequestError, StartError):  # the pod has been deleted since
            return {}


class _Resources:
    """Builder of the resources of a view."""

    def __init__(self) -> None:
        self._holders = Holders()
        self._layouts = Layouts()
        self._snapshot: ManagerSnapshot | None = None
        self._views: dict[ResourceName, ResourceView] = {}
        self._all: tuple[ResourceView, ...] = ()

    def refresh(self, snapshot: ManagerSnapshot | None) -> tuple[ResourceView, ...]:
        if snapshot is None:
            # A stopped kubelet has no resources; an empty snapshot also clears the holders.
            snapshot = ManagerSnapshot({}, {}, (), {}, ())
        changed = self._holders.update(snapshot.held) | self._reserved_differently(snapshot)
        connected = {endpoint.id for endpoint in snapshot.connected}
        views = {}
        for name in sorted(snapshot.lists.keys() | self._holders.resources()):
            devices = snapshot.lists.get(name)
            endpoint = snapshot.serving.get(name)
            is_connected = endpoint is not None and endpoint.id in connected
            before = self._views.get(name)
            if before is None or name in changed or self._differs(name, devices, is_connected):
                view = resource_view(
                    name, devices, is_connected, self._holders, snapshot.reserved, self._layouts
                )
                before = reuse_equal(before, view)
            assert before is not None
            views[name] = before
        self._layouts.keep_only(views)
        self._snapshot, self._views = snapshot, views
        self._all = reuse_unchanged(self._all, views.values())
        return self._all

    def _differs(self, name: ResourceName, devices: DeviceList | None, connected: bool) -> bool:
        before = None if self._snapshot is None else self._snapshot.lists.get(name)
        return before is not devices or self._views[name].connected != connected

    def _reserved_differently(self, snapshot: ManagerSnapshot) -> set[ResourceName]:
        before = () if self._snapshot is None else self._snapshot.reserved
        if before == snapshot.reserved:
            return set()
        return {resource for _, resource, _ in (*before, *snapshot.reserved)}


def _parts(view: NodeView) -> tuple[object, ...]:
    return (view.serving, view.resources, view.plugins, view.pods, view.dra, view.events)


def _is_same_tail(before: tuple[object, ...] | None, after: tuple[object, ...]) -> bool:
    # Events are appended in order, so comparing the last one is enough.
    if before is None or len(before) != len(after):
        return False
    return not before or before[-1] is after[-1]

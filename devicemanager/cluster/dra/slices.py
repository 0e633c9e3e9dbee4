"""ResourceSlices of one node: published by its drivers, and wiped by its kubelet.

Theory of operation. A driver publishes its slices when the node joins, and again after each change
of its devices. The kubelet *wipes* (deletes) slices: all slices when it starts on an existing Node,
and later the slices of a driver that has been stopped for some time. The driver publishes them
again after ``slices_delay``, since a driver notices the deletion only later.

Slices have names without a random part, so a driver can write them without reading them first. The
requests for the slices of one node are sent one at a time. They never delay the requests for the
node's status.

Follows ``DRAPluginManager.wipeResourceSlices`` (pkg/kubelet/cm/dra/plugin, v1.36).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from devicemanager.client.errors import ApiError, Conflict, Forbidden, NotFound
from devicemanager.client.protocol import JsonObject
from devicemanager.client.work_queue import Priority
from devicemanager.cluster.driver_layouts import DriverLayout
from devicemanager.cluster.node_context import NodeContext
from devicemanager.core.dra.drivers import WIPE_DELAY
from devicemanager.core.versions.table import WipeRule
from devicemanager.kubelet.inmemory.drivers import DriverState, NodeDrivers

__all__ = ["NodeSlices"]

_Devices = tuple[frozenset[str], frozenset[str]]
"""The unhealthy and the lost devices of a driver: what its slices depend on."""


class NodeSlices:
    """Publisher of the slices of one node. Thread-safe; methods only queue work."""

    __slots__ = (
        "_closed",
        "_drivers",
        "_generations",
        "_node",
        "_published",
        "_queued",
        "_stopped",
        "_uid",
        "_waiting",
    )

    def __init__(self, node: NodeContext, drivers: NodeDrivers, uid: Callable[[], str]) -> None:
        """Create the publisher. ``uid`` returns the UID of the Node, which owns the slices."""
        self._node = node
        self._drivers = drivers
        self._uid = uid
        self._closed = False
        self._queued: set[Callable[[], None]] = set()
        """Work in the queue that has not started. The same work is not queued twice, because the
        queue of a silent node would otherwise grow without limit."""
        # Used only by the work of this node, one at a time.
        self._published: dict[str, _Devices] = {}
        self._generations: dict[str, int] = {}
        self._stopped: dict[str, float] = {}
        """Mapping from the name of a stopped driver to the time at which its stop was first noticed
        (monotonic, in seconds)."""
        self._waiting: set[str] = set()
        """Drivers that publish their slices again after a delay."""

    def joined(self, *, is_new: bool) -> None:
        """Publish all slices of a node that joins or registers again. With ``is_new`` False, wipe
        the slices of an earlier process first."""
        self._queue(self._publish_again if is_new else self._wipe_all)

    def restarted(self) -> None:
        """Wipe all slices, because the kubelet has restarted."""
        self._queue(self._wipe_all)

    def refresh(self) -> None:
        """Publish the slices of drivers whose devices have changed, and wipe those of stopped
        drivers."""
        if any(self._needs_work(each) for each in self._node.options.drivers):
            self._queue(self._publish_all)

    def close(self) -> None:
        """Stop publishing and wiping: the Node is deleted with its slices, or another process runs
        it."""
        self._closed = True

    def _needs_work(self, layout: DriverLayout) -> bool:
        name, state = layout.driver, self._drivers.state(layout.driver)
        if state.is_stopped:
            return name in self._published
        is_due = name not in self._waiting and self._published.get(name) != _devices(state)
        return is_due or name in self._stopped

    def _queue(self, work: Callable[[], None]) -> None:
        if work in self._queued:
            return
        self._queued.add(work)
        key = f"slices/{self._node.name}"
        self._node.writes.put(Priority.NODE_STATUS, key, partial(self._run, work))

    def _run(self, work: Callable[[], None]) -> None:
        node = self._node
        # Removed before the work starts, so that a later change queues it again.
        self._queued.discard(work)
        if self._closed:
            return
        try:
            if node.features.resource_group.version(node.api):
                work()
            else:
                text = "the API server has no resource.k8s.io: nodes publish no ResourceSlices"
                node.features.warn_once(node.warn, text)
        except Forbidden as error:
            node.features.warn_once(
                node.warn, f"cannot write ResourceSlices: {error.message or error}"
            )
        except ApiError as error:
            node.say(f"cannot write ResourceSlices: {error}")

    # -- work of this node, one at a time ------------------------------------------------

    def _publish_again(self) -> None:
        # The garbage collector deletes the slices of an earlier Node, which was their owner.
        for layout in self._node.options.drivers:
            self._forget(layout.driver)
        self._publish_all()

    def _publish_all(self) -> None:
        for layout in self._node.options.drivers:
            state = self._drivers.state(layout.driver)
            if state.is_stopped:
                self._wipe_stopped(layout.driver)
            else:
                self._publish(layout, state)

    def _publish(self, layout: DriverLayout, state: DriverState) -> None:
        name = layout.driver
        # A driver that starts again before its slices are wiped keeps them.
        was_wiped = self._stopped.pop(name, None) is not None and name not in self._published
        if was_wiped:
            self._return_later(name)
        if name in self._waiting or self._published.get(name) == _devices(state):
            return
        generation = self._generations.get(name, 0) + 1
        version = self._node.features.resource_group.version(self._node.api)
        specs = layout.specs(
            self._node.name, generation, version, unhealthy=state.unhealthy, lost=state.lost
        )
        for number, spec in enumerate(specs):
            self._write(number, spec, version, is_new=generation == 1)
        self._generations[name], self._published[name] = generation, _devices(state)

    def _write(self, number: int, spec: JsonObject, version: str, *, is_new: bool) -> None:
        node = self._node
        name = f"{number:05x}-{spec['driver']}-{node.name}"
        owner = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": node.name,
            "uid": self._uid(),
            "controller": True,
        }
        body: JsonObject = {
            "apiVersion": f"resource.k8s.io/{version}",
            "kind": "ResourceSlice",
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": spec,
        }
        path = node.features.resource_group.path(node.api, "resourceslices")
        create = partial(node.api.request, "POST", path, body, user=node.user)
        replace = partial(node.api.request, "PUT", f"{path}/{name}", body, user=node.user)
        try:
            (create if is_new else replace)()
        except Conflict:
            replace()  # it exists: an earlier process wrote it
        except NotFound:
            create()  # another client deleted it

    # -- wiping ----------------------------------------------------------------------

    def _wipe_stopped(self, driver: str) -> None:
        """Wipe the slices of a stopped driver after the kubelet's delay."""
        node, now = self._node, self._node.clock.monotonic()
        if driver not in self._published:
            return
        at_once = node.kubelet.settings.behaviour.dra_wipe is WipeRule.AT_ONCE
        due = self._stopped.setdefault(driver, now) + (0.0 if at_once else WIPE_DELAY)
        if now < due:
            node.clock.call_at(due, self.refresh)
            return
        self._wipe(f"spec.driver={driver},spec.nodeName={node.name}")
        self._forget(driver)

    def _wipe_all(self) -> None:
        if not self._node.options.drivers:
            return
        self._wipe(f"spec.nodeName={self._node.name}")
        for layout in self._node.options.drivers:
            self._forget(layout.driver)
            self._return_later(layout.driver)

    def _wipe(self, selector: str) -> None:
        node = self._node
        path = node.features.resource_group.path(node.api, "resourceslices")
        node.api.request("DELETE", path, query={"fieldSelector": selector}, user=node.user)

    def _forget(self, driver: str) -> None:
        self._published.pop(driver, None)
        self._generations.pop(driver, None)

    def _return_later(self, driver: str) -> None:
        node = self._node
        self._waiting.add(driver)
        delay = node.options.slices_delay.of(f"{node.name}/{driver}")
        node.clock.call_at(node.clock.monotonic() + delay, partial(self._return, driver))

    def _return(self, driver: str) -> None:
        self._waiting.discard(driver)
        self._queue(self._publish_all)


def _devices(state: DriverState) -> _Devices:
    return state.unhealthy, state.lost

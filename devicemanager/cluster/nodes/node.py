"""``ClusterNode``: a node of the cluster, which joins, fails and leaves."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Literal, cast

from devicemanager.client.api import node_path
from devicemanager.client.errors import Conflict, Forbidden, Invalid, NotFound
from devicemanager.client.lease_controller import LeaseController
from devicemanager.client.protocol import Api, JsonObject
from devicemanager.client.rate_limited_warning import Warn
from devicemanager.client.recorder import EventRecorder, EventType
from devicemanager.client.work_queue import PausableQueue, Priority, WorkQueue
from devicemanager.cluster.addresses import PodAddresses, UsedAddresses
from devicemanager.cluster.container_behaviour import ContainerBehaviour
from devicemanager.cluster.dra.node import NodeDra
from devicemanager.cluster.kubelet import DeviceFaults, NodeKubelet
from devicemanager.cluster.node_context import NodeContext, ServerFeatures
from devicemanager.cluster.nodes.faults import NodeFaults
from devicemanager.cluster.nodes.runtime_state import RuntimeState
from devicemanager.cluster.nodes.status import NodeStatusUpdater, register
from devicemanager.cluster.nodes.topology import NodeTopology
from devicemanager.cluster.options import NodeOptions
from devicemanager.cluster.pods.mirrors import Mirrors
from devicemanager.cluster.pods.pod_sync import PodSync
from devicemanager.core.errors import RequestError
from devicemanager.core.nodestatus.conditions import NodeCondition, Pressure
from devicemanager.core.usage import CpuCounter
from devicemanager.events.stream import Event
from devicemanager.io.clock import Clock

__all__ = ["ClusterNode", "Leave"]

Leave = Literal["delete", "keep", "shutdown"]
"""What happens to the Node object when the node leaves. ``delete`` deletes it, and ``keep`` keeps
it for the next process. ``shutdown`` stops the node's pods and keeps the Node object."""

_RETRY = 1.0
"""Seconds until the retry of a status update that failed because the kubelet was restarting."""
_SHUTDOWN_MESSAGE = "Pod was terminated in response to imminent node shutdown."


class ClusterNode:
    """A virtual node of the cluster; ``Cluster.join`` and ``Cluster.join_in_memory`` create it.

    Thread-safe. Methods queue work and return immediately, unless their docstring says that they
    block.

    ``fail_device`` and the other methods for devices and plugins raise RequestError for an
    unknown resource or device. They also raise it for a node whose kubelet has real plugins.
    """

    def __init__(
        self,
        name: str,
        kubelet: NodeKubelet,
        *,
        api: Api,
        work_queue: WorkQueue,
        leases: LeaseController,
        clock: Clock,
        options: NodeOptions | None = None,
        behaviour: ContainerBehaviour | None = None,
        features: ServerFeatures | None = None,
        addresses: PodAddresses | None = None,
        warn: Warn = lambda text: None,
        on_left: Callable[[str], None] = lambda name: None,
    ) -> None:
        """Internal: use ``Cluster.join``.

        ``on_left`` is called with the node's name if the node leaves by itself: its Node object was
        deleted, or the node has no permission to write it.
        """
        self.name = name
        self.kubelet = kubelet
        kubelet.pod_store.cpu_counter = CpuCounter(kubelet.clock.time())
        self.options = options or NodeOptions()
        self._leases = leases
        self._on_left = on_left
        self._key = f"node/{name}"
        user = name if self.options.as_nodes else None
        writes = PausableQueue(work_queue)
        self._context = NodeContext(
            name,
            kubelet,
            self.options,
            behaviour or ContainerBehaviour(),
            api,
            work_queue,
            writes,
            clock,
            EventRecorder(name, api, writes, clock, user),
            features or ServerFeatures(),
            addresses or PodAddresses(UsedAddresses(), self.options.pod_cidr),
            warn,
        )
        placement = self._context.placement
        kubelet.pod_store.node_labels = lambda: placement.labels
        self._state = RuntimeState()
        self._status = NodeStatusUpdater(self._context, self._state)
        mirrors = Mirrors(self._context, lambda: self._uid)
        self._pods = PodSync(self._context, mirrors, self._state.admit)
        self._dra = NodeDra.of(self._context, lambda: self._uid)
        self.faults = NodeFaults(self)
        # Guards changes of ``_is_silent`` and ``_is_over``. Only work under the node's key in the
        # work queue changes ``_uid`` and ``_is_timed``.
        self._lock = threading.Lock()
        self._uid = ""
        self._is_silent = False
        self._is_over = False
        self._is_timed = False
        self._topology = (
            NodeTopology(
                name, kubelet, api=api, work_queue=writes, uid=lambda: self._uid, warn=warn
            )
            if self.options.topology
            else None
        )
        # Subscribed last, because an event can arrive immediately.
        self._unsubscribe = kubelet.events.subscribe(self._on_kubelet_event)

    @property
    def uid(self) -> str:
        """UID of the Node object; empty before ``join``."""
        return self._uid

    @property
    def is_over(self) -> bool:
        """True if the node has left."""
        return self._is_over

    @property
    def is_silent(self) -> bool:
        """True while the node writes nothing to the API server (``silent``)."""
        return self._is_silent

    def conditions(self) -> tuple[NodeCondition, ...]:
        """Return the conditions that the kubelet reports for the node, with Ready as the last."""
        return self._status.conditions()

    def _on_kubelet_event(self, event: Event) -> None:
        self._pods.on_kubelet_event(event)
        if self._dra is not None:
            self._dra.on_kubelet_event(event)
        if self._topology is not None:
            self._topology.on_kubelet_event(event)

    # -- joining -------------------------------------------------------------------------

    def join(self) -> None:
        """Register the node and start to renew its Lease. Blocks.

        Raises ApiError if a request fails. Raises ClusterError if another program created a Node
        object with this name, unless the option ``adopted`` is set.
        """
        found, is_new = register(self._context, self._status, self._take_over)
        self._uid = found["metadata"]["uid"]
        self._context.placement.update(found)
        # The Lease must follow soon: without it, the node lifecycle controller marks the node as
        # NotReady.
        self._leases.add(self.name, self._uid)
        if self._dra is not None:
            self._dra.joined(is_new)
        self.faults.update(found["metadata"].get("annotations") or {}, is_first=True)
        if self._topology is not None:
            self._topology.refresh()
        # A node that re-registers already has a timer.
        if not self._is_timed:
            self._is_timed = True
            self._reconcile_later()

    def _take_over(self, found: JsonObject) -> None:
        # Set before the update, which can find that the Node has been deleted.
        self._uid = found["metadata"]["uid"]
        self._update(force=True)

    def do(self, act: Callable[[], None]) -> None:
        """Run a function in the node's sync loop, after all functions that are already queued."""
        self._pods.do(act)

    def say(self, text: str) -> None:
        """Show a warning about this node to the user."""
        self._context.say(text)

    # -- status ----------------------------------------------------------------------------

    def _reconcile_later(self) -> None:
        when = self._context.clock.monotonic() + self.options.status_interval
        self._context.clock.call_at(when, self._reconcile)

    def _reconcile(self) -> None:
        if self._is_over:
            return
        self._reconcile_later()
        self.refresh()
        self._pods.reconcile()

    def refresh(self) -> None:
        """Queue a check of the Node's status. The check writes the status if it has changed.

        A silent node checks nothing until it resumes.
        """
        if self._is_silent:
            return
        self._context.work_queue.put(Priority.NODE_STATUS, self._key, self._update)
        if self._topology is not None:
            self._topology.refresh()
        if self._dra is not None:
            self._dra.refresh()

    def _update(self, force: bool = False) -> None:
        if self._is_over or self._is_silent:
            return
        uid = self._uid
        try:
            self._status.update(force)
        except NotFound:
            self._on_deleted(uid)
        except Forbidden as error:
            self._on_forbidden(error)
        except Invalid as error:
            self._context.warn(f"{error} (a bug; node status not updated)")
        except RequestError:
            # The kubelet is restarting, so the same update can succeed later.
            clock, again = self._context.clock, partial(self._update, force)
            queue = self._context.work_queue
            clock.call_at(
                clock.monotonic() + _RETRY,
                lambda: queue.put(Priority.NODE_STATUS, self._key, again),
            )

    def record(self, kind: EventType, reason: str, message: str) -> None:
        """Write a Kubernetes event about the node."""
        self._context.record(kind, reason, message)

    # -- events of the API server ------------------------------------------------------------

    def on_pod_list(self, objects: list[JsonObject]) -> None:
        """Add, update and remove pods to match this list of all pods that are bound to the node."""
        self._pods.on_pod_list(objects)

    def on_pod_event(self, kind: str, object_: JsonObject) -> None:
        """Add, update or remove a pod of the node.

        ``kind`` is ``ADDED``, ``MODIFIED`` or ``DELETED``.
        """
        self._pods.on_pod_event(kind, object_)

    def on_node_event(self, kind: str, object_: JsonObject) -> None:
        """Read the labels, taints and faults from the Node object after an event.

        ``kind`` is ``ADDED``, ``MODIFIED`` or ``DELETED``. After a deletion, the node does what the
        option ``on_deleted`` says.
        """
        metadata = object_["metadata"]
        if kind == "DELETED":
            # The event can be about an earlier Node with the same name.
            if metadata["uid"] == self._uid:
                act = partial(self._on_deleted, metadata["uid"])
                self._context.work_queue.put(Priority.NODE_STATUS, self._key, act)
            return
        self._context.placement.update(object_)
        self._status.compare(object_)
        self.faults.update(metadata.get("annotations") or {})
        conditions = (object_.get("status") or {}).get("conditions") or ()
        if any(each.get("status") == "Unknown" for each in conditions):
            # The node lifecycle controller has set conditions to Unknown. A kubelet detects it,
            # because it compares its status with that on the API server. This class compares only
            # with the status that it wrote last, so the write is forced.
            self._write_status()

    def verify(self) -> None:
        """Find out if the Node object still exists. If not, do what ``on_deleted`` says."""
        self._write_status()  # fails with 404 if the Node was deleted

    def _write_status(self) -> None:
        """Write the Node's status even if it has not changed."""
        self._context.work_queue.put(
            Priority.NODE_STATUS, self._key, lambda: self._update(force=True)
        )

    def _on_deleted(self, uid: str) -> None:
        if self._is_over:
            return
        match self.options.on_deleted:
            case "register":
                act = partial(self._register_again, uid)
                self._context.writes.put(Priority.NODE_STATUS, self._key, act)
            case "leave":
                self._leave_by_itself("has left: its Node object was deleted")
            case "stay":
                pass  # like a kubelet, which does not re-register: its updates fail with 404

    def _register_again(self, uid: str) -> None:
        # An event and a failed update can both find the deletion of the Node with this UID. The
        # second registration would delete the node's ResourceSlices.
        if not self._is_over and uid == self._uid:
            self.join()

    def _on_forbidden(self, error: Forbidden) -> None:
        """Leave the cluster, because the node lacks a permission that it needs."""
        self._leave_by_itself(f"has left: {error.message or error}")

    def _leave_by_itself(self, what: str) -> None:
        if self._end():
            self._context.warn(f"node {self.name} {what}")
            self._on_left(self.name)

    # -- devices ------------------------------------------------------------------------------

    def _devices(self) -> DeviceFaults:
        if not hasattr(self.kubelet, "fail_device"):
            raise RequestError(
                f"cannot change devices of node {self.name}: its kubelet has real plugins, and "
                "only they can change their devices; use an in-memory node"
            )
        return cast(DeviceFaults, self.kubelet)

    def fail_device(self, resource: str, device: str) -> None:
        """Make a simulated device unhealthy."""
        self._devices().fail_device(resource, device)
        self.refresh()

    def recover_device(self, resource: str, device: str) -> None:
        """Make an unhealthy simulated device healthy again."""
        self._devices().recover_device(resource, device)
        self.refresh()

    def lose_device(self, resource: str, device: str) -> None:
        """Remove a device from the device list of its simulated plugin."""
        self._devices().lose_device(resource, device)
        self.refresh()

    def return_device(self, resource: str, device: str) -> None:
        """Add a lost device to the device list of its simulated plugin again."""
        self._devices().return_device(resource, device)
        self.refresh()

    def zero_capacity(self, resource: str, zero: bool = True) -> None:
        """Empty the device list of a simulated plugin; with ``zero`` False, restore the list."""
        devices = self._devices()
        (devices.lose_all if zero else devices.return_all)(resource)
        self.refresh()

    def stop_plugin(self, resource: str) -> None:
        """Stop a simulated plugin.

        Its devices become unhealthy, and are removed after the grace period.
        """
        self._devices().stop_plugin(resource)
        self.refresh()

    def start_plugin(self, resource: str) -> None:
        """Start a stopped simulated plugin, which re-registers with the kubelet."""
        self._devices().start_plugin(resource)
        self.refresh()

    def fail_prepare(self, driver: str, times: int = -1) -> None:
        """Make the next ``times`` preparations of claims by a DRA driver fail.

        -1 makes all later preparations fail. 0 ends the failures.
        """
        self._devices().fail_prepare(driver, times)

    def fail_unprepare(self, driver: str, fails: bool = True) -> None:
        """Make a DRA driver fail to unprepare claims, so that pods stay Terminating.

        With ``fails`` False, end these failures.
        """
        self._devices().fail_unprepare(driver, fails)

    def delay_prepare(self, driver: str, seconds: float) -> None:
        """Make a DRA driver wait ``seconds`` before it prepares claims; 0 for no delay.

        The kubelet waits up to 45 s for the driver.
        """
        self._devices().delay_prepare(driver, seconds)

    # -- node and pods --------------------------------------------------------------------------

    def exit(self, uid: str, container: str, exit_code: int = 0, *, reason: str = "") -> None:
        """Make a container of a pod exit. Raises RequestError if it is not running."""
        self._pods.exit(uid, container, exit_code, reason)

    def not_ready(self, why: str, cause: str = "fault") -> None:
        """Make the node not ready because of ``cause``, with the message ``why``.

        An empty message clears the cause. The node is ready again when all causes are cleared.
        """
        self._state.set_error(cause, why)
        self.refresh()

    def pressure(self, pressures: Collection[Pressure]) -> None:
        """Replace the pressure conditions of the node.

        While the node has a pressure, it rejects pods as a kubelet with this pressure does.
        """
        self._state.set_pressures(pressures)
        self.refresh()

    def silent(self, silent: bool = True) -> None:
        """Stop all writes to the API server, as for a node without network.

        With ``silent`` False, resume: everything that has changed in the meantime is written.
        """
        with self._lock:
            if silent == self._is_silent:
                return
            # First, because it can raise RuntimeError. The node then stays silent.
            self._context.writes.pause(silent)
            self._leases.pause(self.name, silent)
            self._is_silent = silent
        if not silent:
            # Forced, because the conditions on the server can have become Unknown.
            self._write_status()
            self.refresh()

    def reboot(self) -> None:
        """Simulate a reboot of the node: containers stop, and all pods go through admission again.

        Pods with devices are rejected, because this admission is before plugins re-register.
        """
        self._pods.do(self._reboot)

    def _reboot(self) -> None:
        self.kubelet.reboot()
        # The boot ID, which must change with each reboot.
        self._status.boots += 1
        boots = self._status.boots
        self.record("Warning", "Rebooted", f"Node {self.name} has been rebooted, boot id: {boots}")
        self.refresh()

    def restart(self) -> None:
        """Restart the kubelet of the node; containers continue to run."""
        self._pods.do(self.kubelet.restart)

    def evict(self, uid: str, resource: str = "memory") -> None:
        """Evict a pod as if the node were low on ``resource``.

        Raises RequestError for an unknown UID.
        """
        self._pods.evict(uid, "Evicted", f"The node was low on resource: {resource}. ")

    # -- leaving ----------------------------------------------------------------------------------

    def leave(self, how: Leave = "delete") -> None:
        """Leave the cluster, or do nothing if the node has already left. Blocks.

        Raises ApiError if the Node object cannot be deleted.
        """
        if self._is_over:
            return
        if self.options.adopted and how == "delete":
            how = "keep"
        # The conditions are written first, because a node that has left writes nothing.
        if how == "shutdown":
            self.shut_down()
            self._update()
        if self._end(keeps_pods=how == "shutdown") and how == "delete":
            # Removed before the Node object: afterwards the garbage collector would delete it.
            if self._topology is not None:
                self._topology.remove()
            body = {"preconditions": {"uid": self._uid}}
            with contextlib.suppress(NotFound, Conflict):  # another client deleted it
                self._context.api.request("DELETE", node_path(self.name), body)

    def shut_down(self) -> None:
        """Simulate a shutdown of the node.

        The node becomes not ready, its pods stop and become Failed, and new pods are rejected.
        """
        self._state.shut_down()
        self.refresh()
        self._pods.evict_all("Terminated", _SHUTDOWN_MESSAGE)

    def _end(self, keeps_pods: bool = False) -> bool:
        """Stop the node; return True if no other call has stopped it before.

        With ``keeps_pods``, ``PodSync`` continues: it stops the containers of the node's pods and
        writes the last pod statuses.
        """
        with self._lock:
            was_over, self._is_over = self._is_over, True
        if was_over:
            return False
        self._leases.remove(self.name)
        if self._dra is not None:
            self._dra.close()
        if not keeps_pods:
            self._pods.close()
            self._unsubscribe()
        return True

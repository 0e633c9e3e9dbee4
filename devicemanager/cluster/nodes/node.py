"""ClusterNode: how a node joins, fails and leaves."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Literal, cast

from devicemanager.cluster.client.api import node_path
from devicemanager.cluster.client.errors import Conflict, Forbidden, Invalid, NotFound
from devicemanager.cluster.client.lease_controller import LeaseController
from devicemanager.cluster.client.protocol import Api, JsonObject
from devicemanager.cluster.client.rate_limited_warning import Warn
from devicemanager.cluster.client.recorder import EventRecorder, EventType
from devicemanager.cluster.client.work_queue import Priority, WorkQueue
from devicemanager.cluster.container_behaviour import ContainerBehaviour
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
from devicemanager.events.stream import Event
from devicemanager.io.clock import Clock

__all__ = ["ClusterNode", "Leave"]

Leave = Literal["delete", "keep", "shutdown"]
"""What happens to the Node at the end: ``delete`` it, ``keep`` it for the next process, or
``shutdown``, which stops its pods first and then keeps it."""

_RETRY = 1.0
"""Seconds until a status update is retried that failed because the kubelet was restarting."""
_SHUTDOWN_MESSAGE = "Pod was terminated in response to imminent node shutdown."


class ClusterNode:
    """One node of the cluster; ``Cluster.join`` and ``Cluster.join_in_memory`` create it.

    Thread-safe. Methods do not block unless they say so: they queue work and return.

    ``fail_device`` and the other methods for devices and plugins raise RequestError for an
    unknown resource or device, and for a node whose kubelet has real plugins.
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
        warn: Warn = lambda text: None,
        on_left: Callable[[str], None] = lambda name: None,
    ) -> None:
        """Internal: a ``Cluster`` makes its nodes.

        ``on_left`` is called with the name if the node leaves because its Node was deleted or
        must not be written.
        """
        self.name = name
        self.kubelet = kubelet
        self.options = options or NodeOptions()
        self._leases = leases
        self._on_left = on_left
        self._key = f"node/{name}"
        user = name if self.options.as_nodes else None
        self._context = NodeContext(
            name,
            kubelet,
            self.options,
            behaviour or ContainerBehaviour(),
            api,
            work_queue,
            clock,
            EventRecorder(name, api, work_queue, clock, user),
            features or ServerFeatures(),
            warn,
            self._on_forbidden,
        )
        self._state = RuntimeState()
        self._status = NodeStatusUpdater(self._context, self._state)
        mirrors = Mirrors(self._context, lambda: self._uid)
        self._pods = PodSync(self._context, mirrors, self._state.admit)
        self.faults = NodeFaults(self)
        # Guards the fields below.
        self._lock = threading.Lock()
        self._uid = ""
        self._is_silent = False
        self._is_over = False
        self._is_timed = False
        self._topology = (
            NodeTopology(
                name, kubelet, api=api, work_queue=work_queue, uid=lambda: self._uid, warn=warn
            )
            if self.options.topology
            else None
        )
        # Last: an event can arrive at once.
        self._unsubscribe = kubelet.events.subscribe(self._on_kubelet_event)

    @property
    def uid(self) -> str:
        """UID of the Node; empty before ``join``."""
        return self._uid

    @property
    def is_over(self) -> bool:
        """True if the node has left."""
        return self._is_over

    @property
    def is_silent(self) -> bool:
        """True if the node has stopped reporting."""
        return self._is_silent

    def conditions(self) -> tuple[NodeCondition, ...]:
        """Return the conditions that the kubelet reports, Ready last."""
        return self._status.conditions()

    def _on_kubelet_event(self, event: Event) -> None:
        self._pods.on_kubelet_event(event)
        if self._topology is not None:
            self._topology.on_kubelet_event(event)

    # -- joining -------------------------------------------------------------------------

    def join(self) -> None:
        """Register the node and start to renew its Lease. Blocks.

        Raises ApiError, and ClusterError if devicemanager did not create the existing Node.
        """
        found = register(self._context, self._status, lambda: self._update(force=True))
        self._uid = found["metadata"]["uid"]
        # Directly after the Node: without a lease in time the node-lifecycle controller gives it
        # up.
        self._leases.add(self.name, self._uid)
        self.faults.update(found["metadata"].get("annotations") or {}, is_first=True)
        if self._topology is not None:
            self._topology.refresh()
        # A node that re-registers has a timer already.
        if not self._is_timed:
            self._is_timed = True
            self._reconcile_later()

    def do(self, act: Callable[[], None]) -> None:
        """Run a function in the node's sync loop, after the decisions that are queued."""
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
        """Queue a write of the Node's status, if it has changed."""
        self._context.work_queue.put(Priority.NODE_STATUS, self._key, self._update)
        if self._topology is not None:
            self._topology.refresh()

    def _update(self, force: bool = False) -> None:
        if self._is_over or self._is_silent:
            return
        try:
            self._status.update(force)
        except NotFound:
            self._on_deleted()
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
        """Handle the list of all pods of the node."""
        self._pods.on_pod_list(objects)

    def on_pod_event(self, kind: str, object_: JsonObject) -> None:
        """Handle a pod of the node, which was ``ADDED``, ``MODIFIED`` or ``DELETED``."""
        self._pods.on_pod_event(kind, object_)

    def on_node_event(self, kind: str, object_: JsonObject) -> None:
        """Handle the Node, which was ``ADDED``, ``MODIFIED`` or ``DELETED``."""
        metadata, queue = object_["metadata"], self._context.work_queue
        if kind == "DELETED":
            # Not for an earlier Node with the same name.
            if metadata["uid"] == self._uid:
                queue.put(Priority.NODE_STATUS, self._key, self._on_deleted)
            return
        self.faults.update(metadata.get("annotations") or {})
        conditions = (object_.get("status") or {}).get("conditions") or ()
        if any(each.get("status") == "Unknown" for each in conditions):
            # The node-lifecycle controller gave the node up. A kubelet compares its status with
            # the API server's and so notices; we compare with what we wrote last.
            queue.put(Priority.NODE_STATUS, self._key, lambda: self._update(force=True))

    def _on_deleted(self) -> None:
        if self._is_over:
            return
        match self.options.on_deleted:
            case "register":
                self.join()
            case "leave":
                self._leave_by_itself("was deleted: it has left")
            case "stay":
                pass  # as a kubelet, which does not re-register; its updates get 404

    def _on_forbidden(self, error: Forbidden) -> None:
        """Leave: without its permissions the node can do nothing."""
        self._leave_by_itself(f"has left: {error.message or error}")

    def _leave_by_itself(self, what: str) -> None:
        if self._end():
            self._context.warn(f"node {self.name} {what}")
            self._on_left(self.name)

    # -- devices ------------------------------------------------------------------------------

    def _devices(self) -> DeviceFaults:
        if not hasattr(self.kubelet, "fail_device"):
            raise RequestError("the node has real plugins: only they can change their devices")
        return cast(DeviceFaults, self.kubelet)

    def fail_device(self, resource: str, device: str) -> None:
        """Make a device unhealthy."""
        self._devices().fail_device(resource, device)
        self.refresh()

    def recover_device(self, resource: str, device: str) -> None:
        """Make a device healthy again."""
        self._devices().recover_device(resource, device)
        self.refresh()

    def lose_device(self, resource: str, device: str) -> None:
        """Remove a device from its plugin's list."""
        self._devices().lose_device(resource, device)
        self.refresh()

    def return_device(self, resource: str, device: str) -> None:
        """Add a lost device to its plugin's list again."""
        self._devices().return_device(resource, device)
        self.refresh()

    def zero_capacity(self, resource: str, zero: bool = True) -> None:
        """Make a plugin's list empty, or restore it."""
        devices = self._devices()
        (devices.lose_all if zero else devices.return_all)(resource)
        self.refresh()

    def stop_plugin(self, resource: str) -> None:
        """Stop a plugin: its devices become unhealthy, and are removed after the grace period."""
        self._devices().stop_plugin(resource)
        self.refresh()

    def start_plugin(self, resource: str) -> None:
        """Start a stopped plugin, which re-registers."""
        self._devices().start_plugin(resource)
        self.refresh()

    # -- node and pods --------------------------------------------------------------------------

    def exit(self, uid: str, container: str, exit_code: int = 0, *, reason: str = "") -> None:
        """End a container of a pod. Raises RequestError if it is not running."""
        self._pods.exit(uid, container, exit_code, reason)

    def not_ready(self, why: str, cause: str = "fault") -> None:
        """Make the node not ready, with this message; an empty one clears the cause."""
        self._state.set_error(cause, why)
        self.refresh()

    def pressure(self, pressures: Collection[Pressure]) -> None:
        """Replace the node's pressures; it rejects pods as a kubelet does."""
        self._state.set_pressures(pressures)
        self.refresh()

    def silent(self, silent: bool = True) -> None:
        """Stop all reports of the node, or resume them: lease, statuses, deletion of pods."""
        with self._lock:
            if silent == self._is_silent:
                return
            # Before pausing, so that a status update that is queued is dropped, too.
            self._is_silent = silent
        self._leases.pause(self.name, silent)
        self._pods.pause(silent)
        if not silent:
            self.refresh()

    def reboot(self) -> None:
        """Reboot the machine: containers stop, and every pod is admitted again.

        Pods with devices are rejected, because the kubelet admits them before plugins register.
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
        """Restart the kubelet; containers keep running."""
        self._pods.do(self.kubelet.restart)

    def evict(self, uid: str, resource: str = "memory") -> None:
        """Evict a pod because the node is low on a resource. Raises RequestError for an unknown
        UID."""
        self._pods.evict(uid, "Evicted", f"The node was low on resource: {resource}. ")

    # -- leaving ----------------------------------------------------------------------------------

    def leave(self, how: Leave = "delete") -> None:
        """Leave the cluster; do nothing if the node has left. Blocks. Raises ApiError."""
        if self._is_over:
            return
        # The conditions must be written before the end, after which nothing is.
        if how == "shutdown":
            self.shut_down()
            self._update()
        if self._end(keeps_pods=how == "shutdown") and how == "delete":
            # Before the Node, whose deletion would make the garbage collector delete it.
            if self._topology is not None:
                self._topology.remove()
            body = {"preconditions": {"uid": self._uid}}
            with contextlib.suppress(NotFound, Conflict):  # another client deleted it
                self._context.api.request("DELETE", node_path(self.name), body)

    def shut_down(self) -> None:
        """Shut the machine down: the node becomes not ready, its pods stop as Failed, and new
        pods are rejected."""
        self._state.shut_down()
        self.refresh()
        self._pods.evict_all("Terminated", _SHUTDOWN_MESSAGE)

    def _end(self, keeps_pods: bool = False) -> bool:
        """End the node; return True for the first of several callers."""
        with self._lock:
            was_over, self._is_over = self._is_over, True
        if was_over:
            return False
        self._leases.remove(self.name)
        # With a shutdown the pods still stop and report their last status.
        if not keeps_pods:
            self._pods.close()
            self._unsubscribe()
        return True

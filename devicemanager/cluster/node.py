"""A node in the cluster: its Node object, kept as a kubelet keeps it, and the pods on it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
from typing import Any, Literal, cast

import attrs

from devicemanager.apiobjects.node import default_labels, node_object, node_status_object
from devicemanager.clock import Clock
from devicemanager.cluster.api import node_path
from devicemanager.cluster.errors import ClusterError, Conflict, Forbidden, Invalid, NotFound
from devicemanager.cluster.facts import Facts
from devicemanager.cluster.kubelet import DeviceFaults, NodeKubelet
from devicemanager.cluster.mirrors import Mirrors
from devicemanager.cluster.nodefaults import NodeFaults
from devicemanager.cluster.options import SHARD_LABEL, VIRTUAL_LABEL, NodeOptions
from devicemanager.cluster.podsync import PodSync, Shared
from devicemanager.cluster.protocol import Api, Heartbeats, JsonObject, Lane, Priority
from devicemanager.cluster.recorder import Recorder, Subject
from devicemanager.cluster.telling import Warn
from devicemanager.cluster.topology import NodeTopology
from devicemanager.core.errors import RequestError
from devicemanager.core.node import NodeStatus
from devicemanager.core.nodestatus.amounts import node_amounts
from devicemanager.core.nodestatus.changes import digest, node_patch
from devicemanager.core.nodestatus.conditions import Pressure, node_conditions
from devicemanager.core.pods import Pod
from devicemanager.core.podstatus.qos import QosClass, qos_class
from devicemanager.core.refusal import Refused
from devicemanager.events import Event

__all__ = ["ClusterNode", "Leave"]

Leave = Literal["delete", "keep", "shutdown"]
"""How a node leaves: its Node is deleted; everything stays as it is, for whoever comes next; or
it is shut down, its pods ended first."""

SHUTTING_DOWN = "node is shutting down"
SHUTDOWN_REFUSAL = "Pod was rejected as the node is shutting down."
SHUTDOWN_ENDS = "Pod was terminated in response to imminent node shutdown."


class ClusterNode:
    """One node. ``join`` makes it one; ``leave`` ends it. May be called from any thread; what is
    not said to block does not."""

    def __init__(
        self,
        name: str,
        kubelet: NodeKubelet,
        *,
        api: Api,
        lane: Lane,
        heartbeat: Heartbeats,
        clock: Clock,
        options: NodeOptions | None = None,
        facts: Facts | None = None,
        shared: Shared | None = None,
        warn: Warn = lambda text: None,
        left: Callable[[str], None] = lambda name: None,
    ) -> None:
        """``left`` is told the name once the node has left because somebody deleted its Node or
        denies us to write it."""
        self.name = name
        self.kubelet = kubelet
        self.options = options or NodeOptions()
        self._api = api
        self._lane = lane
        self._heartbeat = heartbeat
        self._clock = clock
        self._warn = warn
        self._left = left
        self._user = name if self.options.as_nodes else None
        self._key = f"node/{name}"
        self._recorder = Recorder(name, api, lane, clock, self._user)
        self.pods = PodSync(
            name,
            kubelet,
            options=self.options,
            facts=facts or Facts(),
            api=api,
            lane=lane,
            clock=clock,
            recorder=self._recorder,
            mirrors=Mirrors(
                name,
                kubelet,
                options=self.options,
                api=api,
                lane=lane,
                clock=clock,
                owner=lambda: self._uid,
                warn=warn,
                forbidden=self._denied,
            ),
            gate=self._gate,
            shared=shared or Shared(),
            warn=warn,
            forbidden=self._denied,
        )
        self.faults = NodeFaults(self)
        # Guards the fields below.
        self._lock = threading.Lock()
        self._uid = ""
        self._errors: dict[str, str] = {}
        self._pressures: frozenset[Pressure] = frozenset()
        self._is_silent = False
        self._is_over = False
        self._boots = 0
        self._looks = False
        # What follows belongs to the lane's thread for the node's key.
        self._told: JsonObject = {}
        self._digest = 0
        self._told_at = float("-inf")
        self._was_ready = False
        self._others: frozenset[str] = frozenset()
        self._topology = (
            NodeTopology(name, kubelet, api=api, lane=lane, uid=lambda: self._uid, warn=warn)
            if self.options.topology
            else None
        )
        self._unsubscribe = kubelet.events.subscribe(self._happened)

    @property
    def uid(self) -> str:
        """Of the Node; empty before ``join``."""
        return self._uid

    @property
    def is_over(self) -> bool:
        """Whether it has left."""
        return self._is_over

    def _happened(self, event: Event) -> None:
        self.pods.happened(event)
        if self._topology is not None:
            self._topology.happened(event)

    # -- joining -------------------------------------------------------------------------

    def join(self) -> None:
        """Register, and renew the lease from then on. Blocks. Raises ApiError, and ClusterError
        for a Node of this name that is none of ours."""
        status = self._status()
        try:
            found = self._api.request("POST", "/api/v1/nodes", self._object(status))
        except Conflict:
            found = self._take_over()
        else:
            self._tell_done(status)
        self._uid = found["metadata"]["uid"]
        self._heartbeat.add(self.name, self._uid)
        self.faults.annotated(found["metadata"].get("annotations") or {}, is_first=True)
        if self._topology is not None:
            self._topology.look()
        if not self._looks:
            self._looks = True
            self._look_later()

    def _object(self, status: JsonObject) -> JsonObject:
        options = self.options
        return node_object(
            self.name,
            status,
            labels=self._labels(),
            annotations=options.annotations,
            taints=options.taints,
        )

    def _labels(self) -> dict[str, str]:
        ours = {VIRTUAL_LABEL: "true", SHARD_LABEL: self.options.shard}
        return {**default_labels(self.name, self.options.info), **ours, **self.options.labels}

    def _take_over(self) -> JsonObject:
        """The Node is there already, of a process before us (``reconcileExtendedResource`` and
        ``updateDefaultLabels``, pkg/kubelet/kubelet_node_status.go, v1.32)."""
        found = self._api.request("GET", node_path(self.name))
        labels = found["metadata"].get("labels") or {}
        if VIRTUAL_LABEL not in labels:
            raise ClusterError(
                f"node {self.name} is there already and has no label {VIRTUAL_LABEL}: it is none "
                "of ours; take another name"
            )
        wanted = self._labels()
        if any(labels.get(name) != value for name, value in wanted.items()):
            body = {"metadata": {"labels": wanted}}
            self._write("PATCH", body, patch="merge")
        status = found.get("status") or {}
        self._others = frozenset(status.get("capacity") or ())
        self._told = status
        self._tell(force=True)
        return found

    def do(self, act: Callable[[], None]) -> None:
        """Do something with the node's kubelet, after all else that is to be done with it."""
        self.pods.do(act)

    def say(self, text: str) -> None:
        """One line for people about this node."""
        self._warn(f"node {self.name}: {text}")

    # -- status ----------------------------------------------------------------------------

    def _status(self) -> JsonObject:
        """``status`` as of now."""
        devices = self.kubelet.node_status()
        amounts = node_amounts(self.options.amounts, self._with_gone(devices))
        with self._lock:
            errors, pressures = tuple(self._errors.values()), self._pressures
        return node_status_object(
            self.name,
            node_conditions(amounts[0], errors, pressures),
            amounts,
            attrs.evolve(self.options.info, boot_id=str(self._boots or "")),
            now=self._clock.time(),
            before=self._told,
            address=self.options.address,
            port=self.options.port,
        )

    def _with_gone(self, devices: NodeStatus) -> NodeStatus:
        """Devices that a process before us had and we do not: they stay, at 0."""
        gone = {
            name: 0
            for name in self._others
            if "/" in name and name not in devices.capacity and name not in self.options.amounts
        }
        return NodeStatus({**gone, **devices.capacity}, {**gone, **devices.allocatable})

    def _look_later(self) -> None:
        when = self._clock.monotonic() + self.options.status_interval
        self._clock.call_at(when, self._look_now)

    def _look_now(self) -> None:
        if self._is_over:
            return
        self._look_later()
        self.look()
        self.pods.look()

    def look(self) -> None:
        """Tell the status soon, if it has changed."""
        self._lane.put(Priority.NODE_STATUS, self._key, self._tell)
        if self._topology is not None:
            self._topology.look()

    def _tell(self, force: bool = False) -> None:
        if self._is_over or self._is_silent:
            return
        status = self._status()
        due = self._clock.monotonic() - self._told_at >= self.options.report_interval
        if not force and not due and digest(status) == self._digest:
            return
        try:
            self._write("PATCH", node_patch(status), "status", patch="strategic")
        except NotFound:
            self._deleted()
        except Forbidden as error:
            self._denied(error)
        except Invalid as error:
            self._warn(f"{error} (a bug of ours; the node's status stays as it is)")
        else:
            self._tell_done(status)

    def _tell_done(self, status: JsonObject) -> None:
        self._digest = digest(status)
        self._told_at = self._clock.monotonic()
        # All of it that the next one has to know.
        self._told = {
            "conditions": [
                {name: each[name] for name in ("type", "status", "lastTransitionTime")}
                for each in status["conditions"]
            ]
        }
        is_ready = status["conditions"][-1]["status"] == "True"
        if is_ready != self._was_ready:
            self._was_ready = is_ready
            reason = "NodeReady" if is_ready else "NodeNotReady"
            self.record("Normal", reason, f"Node {self.name} status is now: {reason}")

    def _write(self, method: str, body: JsonObject, *below: str, patch: Any = None) -> JsonObject:
        path = node_path(self.name, *below)
        return self._api.request(method, path, body, patch=patch, user=self._user)

    def record(self, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Write an event about the node."""
        # The kubelet's node events have the node's name for its UID.
        self._recorder.record(Subject("Node", self.name, self.name), kind, reason, message)

    # -- what the API says of the node --------------------------------------------------------

    def seen(self, kind: str, object_: JsonObject) -> None:
        """The Node was ``ADDED``, ``MODIFIED`` or ``DELETED``."""
        metadata = object_["metadata"]
        if kind == "DELETED":
            if metadata["uid"] == self._uid:
                self._lane.put(Priority.NODE_STATUS, self._key, self._deleted)
            return
        self.faults.annotated(metadata.get("annotations") or {})
        conditions = (object_.get("status") or {}).get("conditions") or ()
        if any(each.get("status") == "Unknown" for each in conditions):
            # Nobody had heard of us for too long. A kubelet compares with what the API has.
            self._lane.put(Priority.NODE_STATUS, self._key, lambda: self._tell(force=True))

    def _deleted(self) -> None:
        """Somebody deleted the Node."""
        if self._is_over:
            return
        match self.options.on_deleted:
            case "register":
                self.join()
            case "leave":
                self._warn(f"node {self.name} was deleted: it has left")
                self._end()
                self._left(self.name)
            case "stay":
                pass  # as a kubelet: it goes on, and nobody hears of it

    def _denied(self, error: Forbidden) -> None:
        """We may not write what is ours: nothing more can be done for this node."""
        with self._lock:
            if self._is_over:
                return
        self._warn(f"node {self.name} has left: {error.message or error}")
        self._end()
        self._left(self.name)

    # -- what goes wrong ------------------------------------------------------------------------

    def _devices(self) -> DeviceFaults:
        """Whoever breaks our devices."""
        if not hasattr(self.kubelet, "fail_device"):
            raise RequestError("the node has plugins of its own: their devices are theirs to break")
        return cast(DeviceFaults, self.kubelet)

    def fail_device(self, resource: str, device: str) -> None:
        """The device becomes unhealthy. This and what follows about devices raises RequestError
        for one that is not there, and for a node whose devices are its plugin's."""
        self._devices().fail_device(resource, device)
        self.look()

    def heal_device(self, resource: str, device: str) -> None:
        """The device becomes healthy."""
        self._devices().heal_device(resource, device)
        self.look()

    def lose_device(self, resource: str, device: str) -> None:
        """The device is not listed any more."""
        self._devices().lose_device(resource, device)
        self.look()

    def return_device(self, resource: str, device: str) -> None:
        """The device that was lost is listed again."""
        self._devices().return_device(resource, device)
        self.look()

    def zero_capacity(self, resource: str, zero: bool = True) -> None:
        """The plugin lists nothing, until the opposite is said."""
        devices = self._devices()
        (devices.lose_all if zero else devices.return_all)(resource)
        self.look()

    def stop_plugin(self, resource: str) -> None:
        """The plugin ends: its devices are unhealthy, and gone after the grace period."""
        self._devices().stop_plugin(resource)
        self.look()

    def start_plugin(self, resource: str) -> None:
        """The plugin that ended registers again."""
        self._devices().start_plugin(resource)
        self.look()

    def exit(self, uid: str, container: str, exit_code: int = 0, *, reason: str = "") -> None:
        """A container of a pod ends by itself. Raises RequestError for one that does not run."""
        self.pods.exit(uid, container, exit_code, reason)

    def not_ready(self, why: str, cause: str = "fault") -> None:
        """The node is not ready, for this reason; empty: for this cause it is ready again."""
        with self._lock:
            if why:
                self._errors[cause] = why
            else:
                self._errors.pop(cause, None)
        self.look()

    def pressure(self, pressures: Collection[Pressure]) -> None:
        """The node is short of these, and of nothing else: it refuses pods as a kubelet does."""
        with self._lock:
            self._pressures = frozenset(pressures)
        self.look()

    def silent(self, silent: bool = True) -> None:
        """Nobody hears of the node until the opposite is said: no lease is renewed, no status
        told, no pod deleted."""
        with self._lock:
            if silent == self._is_silent:
                return
            self._is_silent = silent
        self._heartbeat.silence(self.name, silent)
        self.pods.pause(silent)
        if not silent:
            self.look()

    def reboot(self) -> None:
        """The machine starts anew: no container runs, every pod is admitted again, those with
        devices before their plugins are back."""
        self.pods.do(self._reboot)

    def _reboot(self) -> None:
        self.kubelet.reboot()
        self._boots += 1
        self.record(
            "Warning", "Rebooted", f"Node {self.name} has been rebooted, boot id: {self._boots}"
        )
        self.look()

    def restart(self) -> None:
        """The kubelet starts anew; containers run on."""
        self.pods.do(self.kubelet.restart)

    def evict(self, uid: str, resource: str = "memory") -> None:
        """The kubelet ends a pod because the node is low on a resource. Raises RequestError if
        there is none with this UID."""
        self.pods.end(uid, "Evicted", f"The node was low on resource: {resource}. ")

    def _gate(self, pod: Pod) -> Refused | None:
        """Why no pod gets further than the door (``evictionManager.Admit``, pkg/kubelet/eviction,
        and the shutdown manager's ``Admit``, v1.32)."""
        with self._lock:
            pressures = [str(each) for each in Pressure if each in self._pressures]
            shuts_down = SHUTTING_DOWN in self._errors.values()
        if pressures:
            spared = qos_class(pod) is not QosClass.BEST_EFFORT
            if not (spared and pressures == [Pressure.MEMORY]):
                listed = " ".join(pressures)
                return Refused("Evicted", f"The node had condition: [{listed}]. ")
        if shuts_down:
            return Refused("NodeShutdown", SHUTDOWN_REFUSAL)
        return None

    # -- leaving ----------------------------------------------------------------------------------

    def leave(self, how: Leave = "delete") -> None:
        """Be a node no more. Blocks until the API server knows. Raises ApiError; leaving twice
        does nothing."""
        if self._is_over:
            return
        if how == "shutdown":
            self.shut_down()
            self._tell()
        self._end(keeps_pods=how == "shutdown")
        if how == "delete":
            if self._topology is not None:
                self._topology.remove()
            body = {"preconditions": {"uid": self._uid}}
            with contextlib.suppress(NotFound, Conflict):  # somebody was faster
                self._api.request("DELETE", node_path(self.name), body)

    def shut_down(self) -> None:
        """The machine is about to go down: the node is not ready, its pods end as Failed, and no
        new one is taken."""
        self.not_ready(SHUTTING_DOWN, "shutdown")
        self.pods.end_all("Terminated", SHUTDOWN_ENDS)

    def _end(self, keeps_pods: bool = False) -> None:
        with self._lock:
            self._is_over = True
        self._heartbeat.remove(self.name)
        if not keeps_pods:
            self.pods.close()
            self._unsubscribe()

"""A node in the cluster: how it joins, what goes wrong with it, and how it leaves."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Literal

from devicemanager.cluster.client.api import node_path
from devicemanager.cluster.client.errors import Conflict, Forbidden, Invalid, NotFound
from devicemanager.cluster.client.protocol import Api, Heartbeats, JsonObject, Lane, Priority
from devicemanager.cluster.client.rate_limited_warning import Warn
from devicemanager.cluster.client.recorder import EventType, Recorder
from devicemanager.cluster.facts import Facts
from devicemanager.cluster.kubelet import NodeKubelet
from devicemanager.cluster.nodecontext import NodeContext, Shared
from devicemanager.cluster.nodes.devices import NodeDevices
from devicemanager.cluster.nodes.faults import NodeFaults
from devicemanager.cluster.nodes.registration import register
from devicemanager.cluster.nodes.runtimestate import RuntimeState
from devicemanager.cluster.nodes.status import NodeStatusUpdater
from devicemanager.cluster.nodes.topology import NodeTopology
from devicemanager.cluster.options import NodeOptions
from devicemanager.cluster.pods.mirrors import Mirrors
from devicemanager.cluster.pods.sync import PodSync
from devicemanager.core.errors import RequestError
from devicemanager.core.nodestatus.conditions import NodeCondition, Pressure
from devicemanager.events.stream import Event
from devicemanager.io.clock import Clock

__all__ = ["ClusterNode", "Leave"]

Leave = Literal["delete", "keep", "shutdown"]
"""How a node leaves: its Node is deleted; everything stays as it is, for whoever comes next; or
it is shut down, its pods ended first."""

_RETRY = 1.0
"""Seconds until a status is written of a kubelet that did not serve."""
_SHUTDOWN_ENDS = "Pod was terminated in response to imminent node shutdown."


class ClusterNode(NodeDevices):
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
        self._heartbeat = heartbeat
        self._left = left
        self._key = f"node/{name}"
        user = name if self.options.as_nodes else None
        self._node = NodeContext(
            name,
            kubelet,
            self.options,
            facts or Facts(),
            api,
            lane,
            clock,
            Recorder(name, api, lane, clock, user),
            shared or Shared(),
            warn,
            self._denied,
        )
        self._state = RuntimeState()
        self._status = NodeStatusUpdater(self._node, self._state)
        self.pods = PodSync(self._node, Mirrors(self._node, lambda: self._uid), self._state.admit)
        self.faults = NodeFaults(self)
        # Guards the fields below.
        self._lock = threading.Lock()
        self._uid = ""
        self._is_silent = False
        self._is_over = False
        self._looks = False
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

    @property
    def is_silent(self) -> bool:
        """Whether nobody hears of it."""
        return self._is_silent

    def conditions(self) -> tuple[NodeCondition, ...]:
        """What its kubelet says of the node, Ready last; the API has it soon."""
        return self._status.conditions()

    def _happened(self, event: Event) -> None:
        self.pods.happened(event)
        if self._topology is not None:
            self._topology.happened(event)

    # -- joining -------------------------------------------------------------------------

    def join(self) -> None:
        """Register, and renew the lease from then on. Blocks. Raises ApiError, and ClusterError
        for a Node of this name that is none of ours."""
        found = register(self._node, self._status, lambda: self._update(force=True))
        self._uid = found["metadata"]["uid"]
        self._heartbeat.add(self.name, self._uid)
        self.faults.annotated(found["metadata"].get("annotations") or {}, is_first=True)
        if self._topology is not None:
            self._topology.look()
        if not self._looks:
            self._looks = True
            self._look_later()

    def do(self, act: Callable[[], None]) -> None:
        """Do something with the node's kubelet, after all else that is to be done with it."""
        self.pods.do(act)

    def say(self, text: str) -> None:
        """One line for people about this node."""
        self._node.say(text)

    # -- status ----------------------------------------------------------------------------

    def _look_later(self) -> None:
        when = self._node.clock.monotonic() + self.options.status_interval
        self._node.clock.call_at(when, self._look_now)

    def _look_now(self) -> None:
        if self._is_over:
            return
        self._look_later()
        self.look()
        self.pods.look()

    def look(self) -> None:
        """Write the status soon, if it has changed."""
        self._node.lane.put(Priority.NODE_STATUS, self._key, self._update)
        if self._topology is not None:
            self._topology.look()

    def _update(self, force: bool = False) -> None:
        if self._is_over or self._is_silent:
            return
        try:
            self._status.update(force)
        except NotFound:
            self._deleted()
        except Forbidden as error:
            self._denied(error)
        except Invalid as error:
            self._node.warn(f"{error} (a bug of ours; the node's status stays as it is)")
        except RequestError:
            # The kubelet is being restarted: there will be another one.
            node, again = self._node, partial(self._update, force)
            node.clock.call_at(
                node.clock.monotonic() + _RETRY,
                lambda: node.lane.put(Priority.NODE_STATUS, self._key, again),
            )

    def record(self, kind: EventType, reason: str, message: str) -> None:
        """Write an event about the node."""
        self._node.record(kind, reason, message)

    # -- what the API says of the node --------------------------------------------------------

    def seen(self, kind: str, object_: JsonObject) -> None:
        """The Node was ``ADDED``, ``MODIFIED`` or ``DELETED``."""
        metadata = object_["metadata"]
        if kind == "DELETED":
            if metadata["uid"] == self._uid:
                self._node.lane.put(Priority.NODE_STATUS, self._key, self._deleted)
            return
        self.faults.annotated(metadata.get("annotations") or {})
        conditions = (object_.get("status") or {}).get("conditions") or ()
        if any(each.get("status") == "Unknown" for each in conditions):
            # Nobody had heard of us for too long. A kubelet compares with what the API has.
            self._node.lane.put(Priority.NODE_STATUS, self._key, lambda: self._update(force=True))

    def _deleted(self) -> None:
        """Somebody deleted the Node."""
        if self._is_over:
            return
        match self.options.on_deleted:
            case "register":
                self.join()
            case "leave":
                self._leave_by_itself("was deleted: it has left")
            case "stay":
                pass  # as a kubelet: it goes on, and nobody hears of it

    def _denied(self, error: Forbidden) -> None:
        """We may not write what is ours: nothing more can be done for this node."""
        self._leave_by_itself(f"has left: {error.message or error}")

    def _leave_by_itself(self, what: str) -> None:
        if self._end():
            self._node.warn(f"node {self.name} {what}")
            self._left(self.name)

    # -- what goes wrong ------------------------------------------------------------------------

    def exit(self, uid: str, container: str, exit_code: int = 0, *, reason: str = "") -> None:
        """A container of a pod ends by itself. Raises RequestError for one that does not run."""
        self.pods.exit(uid, container, exit_code, reason)

    def not_ready(self, why: str, cause: str = "fault") -> None:
        """The node is not ready, for this reason; empty: for this cause it is ready again."""
        self._state.set_error(cause, why)
        self.look()

    def pressure(self, pressures: Collection[Pressure]) -> None:
        """The node is short of these, and of nothing else: it rejects pods as a kubelet does."""
        self._state.set_pressures(pressures)
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
        self._status.boots += 1
        boots = self._status.boots
        self.record("Warning", "Rebooted", f"Node {self.name} has been rebooted, boot id: {boots}")
        self.look()

    def restart(self) -> None:
        """The kubelet starts anew; containers run on."""
        self.pods.do(self.kubelet.restart)

    def evict(self, uid: str, resource: str = "memory") -> None:
        """The kubelet ends a pod because the node is low on a resource. Raises RequestError if
        there is none with this UID."""
        self.pods.evict(uid, "Evicted", f"The node was low on resource: {resource}. ")

    # -- leaving ----------------------------------------------------------------------------------

    def leave(self, how: Leave = "delete") -> None:
        """Be a node no more. Blocks until the API server knows. Raises ApiError; leaving twice
        does nothing."""
        if self._is_over:
            return
        if how == "shutdown":
            self.shut_down()
            self._update()
        if self._end(keeps_pods=how == "shutdown") and how == "delete":
            if self._topology is not None:
                self._topology.remove()
            body = {"preconditions": {"uid": self._uid}}
            with contextlib.suppress(NotFound, Conflict):  # somebody was faster
                self._node.api.request("DELETE", node_path(self.name), body)

    def shut_down(self) -> None:
        """The machine is about to go down: the node is not ready, its pods end as Failed, and no
        new one is taken."""
        self._state.shut_down()
        self.look()
        self.pods.evict_all("Terminated", _SHUTDOWN_ENDS)

    def _end(self, keeps_pods: bool = False) -> bool:
        """Whether this is its end: of several who come to end it, for one."""
        with self._lock:
            was_over, self._is_over = self._is_over, True
        if was_over:
            return False
        self._heartbeat.remove(self.name)
        if not keeps_pods:
            self.pods.close()
            self._unsubscribe()
        return True

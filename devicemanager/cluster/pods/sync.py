"""The pods of one node: what the API and the kubelet say of them, and who deals with that.

Decisions of a node (admit, start, stop) come one after another, under the node's name in the
lane (``syncloop``); what is written of a pod comes one after another under the pod's UID
(``statusmanager``). Nothing here waits for the one in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.nodecontext import NodeContext
from devicemanager.cluster.pods.admission import AdmitHandler, PodAdmission
from devicemanager.cluster.pods.manager import PodManager
from devicemanager.cluster.pods.mirrors import Mirrors
from devicemanager.cluster.pods.state import ACTIVE, MIRROR, PodState, Stage
from devicemanager.cluster.pods.statusmanager import StatusManager
from devicemanager.cluster.pods.syncloop import SyncLoop
from devicemanager.cluster.pods.termination import PodTermination
from devicemanager.cluster.pods.timers import ContainerTimers
from devicemanager.core.errors import RequestError
from devicemanager.events.stream import Event, EventKind

__all__ = ["PodSync"]

_CHANGES: Final = frozenset(
    {
        EventKind.CONTAINER_STARTED,
        EventKind.CONTAINER_EXITED,
        EventKind.CONTAINER_BACK_OFF,
        EventKind.CONTAINER_FAILED,
        EventKind.FINISHED,
        EventKind.REJECTED,
        EventKind.DEVICE_HEALTH,
        EventKind.HEALTH_DROPPED,
        EventKind.TERMINATED,
    }
)
"""Events after which a pod's status may be another one."""


class PodSync:
    """See the module. May be called from any thread; nothing here blocks but what the lane runs."""

    __slots__ = (
        "_admission",
        "_knows_all",
        "_loop",
        "_mirrors",
        "_node",
        "_pods",
        "_statuses",
        "_termination",
        "_timers",
    )

    def __init__(self, node: NodeContext, mirrors: Mirrors, handler: AdmitHandler) -> None:
        self._node = node
        self._mirrors = mirrors
        self._loop = SyncLoop(node)
        self._pods = PodManager(node)
        self._statuses = StatusManager(
            node, self._pods, lambda uid: self._loop.do(partial(self._remove, uid))
        )
        self._timers = ContainerTimers(node, self._loop, self._statuses)
        self._termination = PodTermination(node, self._loop, self._pods, self._statuses)
        self._admission = PodAdmission(
            node,
            self._loop,
            self._pods,
            self._statuses,
            self._timers,
            self._termination,
            handler,
        )
        self._knows_all = False

    # -- what the API says -------------------------------------------------------------

    def listed(self, objects: Sequence[JsonObject]) -> None:
        """All pods of the node; what is not there is gone."""
        self._loop.do(partial(self._replace, objects))

    def seen(self, kind: str, object_: JsonObject) -> None:
        """A pod of the node was ``ADDED``, ``MODIFIED`` or ``DELETED``."""
        uid = object_["metadata"]["uid"]
        known = self._pods.get(uid)
        if known is not None and kind == "MODIFIED" and known.is_own_write(object_):
            return
        if kind == "DELETED":
            self._loop.do(partial(self._remove, uid))
        else:
            self._loop.do(partial(self._put, object_))

    def _replace(self, objects: Sequence[JsonObject]) -> None:
        there = {each["metadata"]["uid"] for each in objects}
        for pod in self._pods.all():
            if pod.uid not in there:
                self._remove(pod.uid)
        # Those that ran here come first: they hold what they hold.
        for each in sorted(objects, key=_order):
            self._put(each)
        self._mirrors.listed(there)
        if not self._knows_all:
            self._knows_all = True
            self._node.kubelet.sources_ready()
            for record in self._node.kubelet.pod_store.records():
                if self._pods.get(record.pod.uid) is None:
                    self._mirrors.touch(record.pod.uid)

    def _put(self, object_: JsonObject) -> None:
        try:
            self._take(object_)
        except RequestError:
            raise
        except Exception as error:
            # Nothing that goes wrong with one pod may cost the others.
            metadata = object_["metadata"]
            title = f"{metadata.get('namespace')}/{metadata['name']}"
            self._node.say(
                f"pod {title} cannot be taken: unexpected {type(error).__name__}: {error} "
                "(a bug, or a pod of a form that none has)"
            )

    def _take(self, object_: JsonObject) -> None:
        metadata = object_["metadata"]
        pod = self._pods.get(metadata["uid"])
        if pod is None and MIRROR in (metadata.get("annotations") or {}):
            self._mirrors.taken(object_)
        elif pod is None:
            self._admission.add(object_)
        elif metadata.get("deletionTimestamp"):
            self._termination.delete(pod)
        else:
            pod.note(object_)
            self._statuses.compare(pod, object_)

    def _remove(self, uid: str) -> None:
        """There is no such pod in the API any more."""
        pod = self._pods.remove(uid)
        if pod is None:
            self._mirrors.gone(uid)
            return
        self._pods.move(pod, Stage.DELETED)
        self._pods.free(pod)

    # -- what the kubelet says ---------------------------------------------------------

    def happened(self, event: Event) -> None:
        """Something happened in the kubelet, which may hold locks of its own: this only notes."""
        if event.kind not in _CHANGES:
            return
        if event.kind in (EventKind.DEVICE_HEALTH, EventKind.HEALTH_DROPPED):
            self._drain()
        if not event.pod:
            return
        pod = self._pods.get(event.pod)
        if pod is None:
            if self._knows_all:
                self._loop.do(partial(self._static, event.pod))
            return
        match event.kind:
            case EventKind.TERMINATED:
                return  # we did that ourselves
            case EventKind.CONTAINER_STARTED:
                if pod.play.run_for is not None:
                    self._loop.do(partial(self._timers.start, pod))
            case EventKind.CONTAINER_FAILED:
                pod.needs_start = True
            case EventKind.FINISHED:
                self._pods.move(pod, Stage.FINISHED, Stage.RUNNING)
            case EventKind.REJECTED:
                if pod.stage in ACTIVE:
                    self._loop.do(partial(self._admission.rejected_later, pod))
        self._statuses.changed(pod)

    def _static(self, uid: str) -> None:
        """Something happened to a pod that the API does not know, or knew no more."""
        if self._pods.get(uid) is None:
            self._mirrors.touch(uid)

    def _drain(self) -> None:
        """Take the reports of changed health out: the events have told."""
        waiting = self._node.kubelet.health_updates
        while not waiting.empty():
            waiting.get()

    # -- what users say ----------------------------------------------------------------

    def do(self, act: Callable[[], None]) -> None:
        """Do something with the node's kubelet, after all that is to be decided."""
        self._loop.do(act)

    def exit(self, uid: str, container: str, exit_code: int, reason: str = "") -> None:
        """A container ends by itself. Raises RequestError for one that does not run."""
        self._timers.exit(self._pods.known(uid), container, exit_code, reason)

    def evict(self, uid: str, reason: str, message: str) -> None:
        """The kubelet ends one pod. Raises RequestError if there is none with this UID."""
        self._termination.evict(self._pods.known(uid), reason, message)

    def evict_all(self, reason: str, message: str) -> None:
        """The kubelet ends every pod, each Failed for this reason."""
        self._termination.evict_all(reason, message)

    def pods(self) -> tuple[PodState, ...]:
        """Every pod that the API has on this node, as far as we know."""
        return self._pods.all()

    # -- from time to time, and the end ------------------------------------------------

    def look(self) -> None:
        """Put back what somebody else changed, and try again what could not be started."""
        self._statuses.reconcile()
        for pod in self._pods.all():
            if pod.needs_start and pod.stage is Stage.RUNNING:
                pod.needs_start = False
                self._loop.do(partial(self._admission.start_again, pod))

    def pause(self, paused: bool) -> None:
        """Tell the API nothing until the opposite is said; then all that is new."""
        self._statuses.pause(paused)

    def close(self) -> None:
        """Do nothing any more. What is under way comes to its end."""
        self._mirrors.close()
        self._statuses.close()
        self._loop.close()


def _order(object_: JsonObject) -> tuple[bool, str, str]:
    """What ran here first, then by age."""
    metadata = object_["metadata"]
    is_new = not (object_.get("status") or {}).get("startTime")
    return is_new, str(metadata.get("creationTimestamp")), str(metadata["name"])

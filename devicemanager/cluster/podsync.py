"""The pods of one node: what the API says of them, and what the kubelet makes of that.

Decisions of a node (admit, start, stop) come one after another, under the node's name in the
lane; what is told to the API of a pod comes one after another under the pod's UID. Nothing here
waits for the one in the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from devicemanager.apiobjects.podstatus import (
    container_statuses_of,
    held_devices,
)
from devicemanager.apiobjects.times import seconds_of
from devicemanager.clock import Clock
from devicemanager.cluster.errors import Conflict, Forbidden, Invalid, NotFound
from devicemanager.cluster.facts import Facts
from devicemanager.cluster.kubelet import NodeKubelet
from devicemanager.cluster.mirrors import Mirrors
from devicemanager.cluster.options import NodeOptions
from devicemanager.cluster.podstate import MIRROR, PodState, Stage
from devicemanager.cluster.podtelling import PodTelling, Shared
from devicemanager.cluster.protocol import Api, JsonObject, Lane, Priority
from devicemanager.cluster.recorder import Recorder
from devicemanager.cluster.telling import Warn
from devicemanager.core.errors import RequestError
from devicemanager.core.pods import Pod
from devicemanager.core.podstatus.containers import Running
from devicemanager.core.podstatus.merge import is_told
from devicemanager.core.podstatus.phase import Phase
from devicemanager.core.podstatus.status import PodFacts
from devicemanager.core.refusal import Refused
from devicemanager.events import Event, EventKind
from devicemanager.manifests.bound import bound_pod
from devicemanager.manifests.errors import ManifestError

__all__ = ["Gate", "PodSync", "Shared"]

_PATIENCE: Final = 1.0
"""Seconds until something is tried again that a kubelet could not do which does not serve."""
_LAST: Final = (Stage.LEAVING, Stage.GONE)
_ALIVE: Final = (Stage.RUNNING, Stage.PENDING)

Gate = Callable[[Pod], Refused | None]
"""Why a node takes a pod no further than its door; None if it does."""

_CHANGES: Final = frozenset(
    {
        EventKind.CONTAINER_STARTED,
        EventKind.CONTAINER_EXITED,
        EventKind.CONTAINER_BACK_OFF,
        EventKind.CONTAINER_FAILED,
        EventKind.FINISHED,
        EventKind.REFUSED,
        EventKind.DEVICE_HEALTH,
        EventKind.HEALTH_DROPPED,
        EventKind.TERMINATED,
    }
)
"""Events after which a pod's status may be another one."""


class PodSync:
    """See the module. May be called from any thread; nothing here blocks but what the lane runs."""

    def __init__(
        self,
        node: str,
        kubelet: NodeKubelet,
        *,
        options: NodeOptions,
        facts: Facts,
        api: Api,
        lane: Lane,
        clock: Clock,
        recorder: Recorder,
        mirrors: Mirrors,
        gate: Gate,
        shared: Shared,
        warn: Warn,
        forbidden: Callable[[Forbidden], None],
    ) -> None:
        """``forbidden`` is told when the API server denies us a write."""
        self._node = node
        self._kubelet = kubelet
        self._options = options
        self._facts = facts
        self._lane = lane
        self._clock = clock
        self._recorder = recorder
        self._mirrors = mirrors
        self._gate = gate
        self._telling = PodTelling(node, kubelet, options, api, clock, shared, warn)
        self._warn = warn
        self._forbidden = forbidden
        # Guards the fields below and what ``PodState`` says is guarded; nothing is called under
        # it but what takes no lock.
        self._lock = threading.Lock()
        self._pods: dict[str, PodState] = {}
        self._inbox: list[Callable[[], None]] = []
        self._is_deciding = False
        self._knows_all = False
        self._paused = False
        self._closed = False

    # -- what the API tells ------------------------------------------------------------

    def listed(self, objects: Sequence[JsonObject]) -> None:
        """All pods of the node; what is not there is gone."""
        self._later(partial(self._take_list, objects))

    def seen(self, kind: str, object_: JsonObject) -> None:
        """A pod of the node was ``ADDED``, ``MODIFIED`` or ``DELETED``."""
        uid = object_["metadata"]["uid"]
        known = self._pods.get(uid)
        if known is not None and kind == "MODIFIED" and known.is_echo(object_):
            return  # our own words
        if kind == "DELETED":
            self._later(partial(self._gone, uid))
        else:
            self._later(partial(self._take, object_))

    def do(self, act: Callable[[], None]) -> None:
        """Do something with the node's kubelet, after all that is to be decided."""
        self._later(act)

    def _later(self, act: Callable[[], None]) -> None:
        """Decide something, after all else that is to be decided."""
        with self._lock:
            self._inbox.append(act)
            if self._is_deciding or self._closed:
                return
            self._is_deciding = True
        self._lane.put(Priority.POD_STATUS, self._node, self._decide)

    def _decide(self) -> None:
        while True:
            with self._lock:
                acts, self._inbox = self._inbox, []
                if not acts or self._closed:
                    self._is_deciding = False
                    return
            for act in acts:
                self._carry_out(act)

    def _carry_out(self, act: Callable[[], None]) -> None:
        try:
            act()
        except RequestError as error:
            if self._kubelet.is_serving:
                self._warn(f"node {self._node}: {error}")
            else:
                # It is being restarted: there will be another one.
                self._after(_PATIENCE, act)
        except Exception as error:
            # Nothing that goes wrong with one pod may cost the others.
            self._warn(f"node {self._node}: unexpected {type(error).__name__}: {error} (a bug)")

    def _take_list(self, objects: Sequence[JsonObject]) -> None:
        there = {each["metadata"]["uid"] for each in objects}
        for uid in [uid for uid in self._pods if uid not in there]:
            self._gone(uid)
        # Those that ran here come first: they hold what they hold.
        for each in sorted(objects, key=_order):
            self._take(each)
        self._mirrors.listed(there)
        if not self._knows_all:
            self._knows_all = True
            self._kubelet.sources_ready()
            for uid in self._kubelet.pods():
                if uid not in self._pods:
                    self._mirrors.touch(uid)

    def _take(self, object_: JsonObject) -> None:
        pod = self._pods.get(object_["metadata"]["uid"])
        if pod is None:
            self._take_new(object_)
        else:
            self._take_again(pod, object_)

    def _take_again(self, pod: PodState, object_: JsonObject) -> None:
        if object_["metadata"].get("deletionTimestamp"):
            self._delete(pod)
            return
        pod.note(object_)
        if pod.is_settled(object_):
            return
        ours = self._telling.status(pod)
        if ours is None or is_told(object_.get("status") or {}, ours):
            return
        with self._lock:
            # Put back with the next look, so that two who disagree do not get hot over it.
            pod.is_suspect = True

    # -- new pods ----------------------------------------------------------------------

    def _take_new(self, object_: JsonObject) -> None:
        metadata, status = object_["metadata"], object_.get("status") or {}
        if MIRROR in (metadata.get("annotations") or {}):
            self._mirrors.taken(object_)
            return
        play, faults = self._facts.of(metadata)
        pod = PodState.of(object_, play)
        for fault in faults:
            self._warn(f"pod {pod.title}: {fault}")
        with self._lock:
            self._pods[pod.uid] = pod
        if status.get("phase") in ("Succeeded", "Failed"):
            self._move(pod, Stage.DONE)
        else:
            try:
                self._begin(pod, bound_pod(object_), status, metadata)
            except ManifestError as error:
                self._warn(f"node {self._node}: {error}; it stays as it is")
                self._move(pod, Stage.DONE)
                return
            except RequestError:
                with self._lock:
                    del self._pods[pod.uid]
                raise
        if metadata.get("deletionTimestamp"):
            self._delete(pod)

    def _begin(
        self,
        pod: PodState,
        known: Pod,
        status: Mapping[str, Any],
        metadata: Mapping[str, Any],
    ) -> None:
        was_here = status.get("startTime") is not None
        if metadata.get("deletionTimestamp") and not was_here:
            # Nothing was started, and nothing will be.
            pod.refusal = PodFacts(known, Phase.FAILED, start_time=self._clock.time())
            pod.never_ran = True
            self._move(pod, Stage.DONE)
            return
        refused = None if was_here else self._gate(known)
        if refused is not None:
            self._refuse_at_the_door(pod, known, refused)
            return
        ran = container_statuses_of(status)
        with self._changing(pod):
            if was_here:
                answer = self._kubelet.restore(
                    known,
                    held_devices(status),
                    statuses={str(name): each for name, each in ran.items()},
                    start_time=seconds_of(status.get("startTime")),
                )
            else:
                answer = self._kubelet.admit(known, start=False)
            if not answer.admitted:
                self._refused(pod, answer.reason, answer.message)
            else:
                self._admitted(pod, known)

    def _admitted(self, pod: PodState, known: Pod) -> None:
        record = self._kubelet.pod(pod.uid)
        if pod.play.never_ready:
            record.unready = frozenset(str(each.name) for each in known.containers)
        if record.has_sandbox:
            self._move(pod, Stage.RUNNING)
            self._watch_running(pod)
        elif pod.play.start_delay > 0:
            self._move(pod, Stage.PENDING)
            self._after(pod.play.start_delay, lambda: self._start(pod))
        else:
            self._start(pod)

    def _start(self, pod: PodState) -> None:
        if not self._move(pod, Stage.RUNNING, Stage.NEW, Stage.PENDING):
            return
        if not self._kubelet.pod(pod.uid).is_active:
            return  # refused meanwhile, after a reboot
        with self._changing(pod):
            self._kubelet.start_pod(pod.uid)
        if self._options.all_events:
            for container, _ in self._kubelet.pod(pod.uid).pod.all_containers():
                image = f'Container image "{container.image}" already present on machine'
                self._tell(pod, "Pulled", image)
                self._tell(pod, "Created", f"Created container: {container.name}")
                self._tell(pod, "Started", f"Started container {container.name}")

    def _move(self, pod: PodState, to: Stage, *only_from: Stage) -> bool:
        """The pod comes to another stage, if it may. From the last two there is no way back."""
        with self._lock:
            may = pod.stage in only_from if only_from else pod.stage not in _LAST
            if may or to is Stage.GONE:
                pod.stage = to
                return True
            return False

    def _refused(self, pod: PodState, reason: str, message: str) -> None:
        if not self._move(pod, Stage.REFUSED):
            return
        self._recorder.record(pod.subject, "Warning", reason, message)

    def _refuse_at_the_door(self, pod: PodState, known: Pod, refused: Refused) -> None:
        pod.refusal = PodFacts(
            known, Phase.FAILED, refused.reason, refused.message, self._clock.time()
        )
        self._refused(pod, refused.reason, refused.message)
        self._touch(pod)

    def _tell(self, pod: PodState, reason: str, message: str) -> None:
        self._recorder.record(pod.subject, "Normal", reason, message)

    # -- containers that end -------------------------------------------------------------

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
                self._later(partial(self._static, event.pod))
            return
        match event.kind:
            case EventKind.TERMINATED:
                return  # we did that ourselves
            case EventKind.CONTAINER_STARTED:
                if pod.play.run_for is not None:
                    self._later(partial(self._watch_running, pod))
            case EventKind.CONTAINER_FAILED:
                pod.is_unstarted = True
            case EventKind.FINISHED:
                self._move(pod, Stage.DONE, Stage.RUNNING)
            case EventKind.REFUSED:
                if pod.stage in _ALIVE:
                    self._later(partial(self._refused_later, pod))
        self._touch(pod)

    def _static(self, uid: str) -> None:
        """Something happened to a pod that the API does not know, or knew no more."""
        if uid not in self._pods:
            self._mirrors.touch(uid)

    def _drain(self) -> None:
        """Take the reports of changed health out: the events have told."""
        waiting = self._kubelet.health_updates
        while not waiting.empty():
            waiting.get()

    def _refused_later(self, pod: PodState) -> None:
        """One that ran: refused after a reboot."""
        if pod.stage in _LAST:
            return
        record = self._kubelet.pod(pod.uid)
        self._refused(pod, record.reason, record.message)
        self._touch(pod)

    def _watch_running(self, pod: PodState) -> None:
        """See to it that what runs ends in time."""
        run_for = pod.play.run_for
        if run_for is None or pod.stage in _LAST:
            return
        record = self._kubelet.pod(pod.uid)
        for container in record.pod.containers:
            state = record.status(container.name).state
            if not isinstance(state, Running) or pod.watches(container.name, state.started_at):
                continue
            ran = 0.0 if state.started_at is None else self._clock.time() - state.started_at
            over = partial(self._run_over, pod, container.name, state.started_at)
            self._after(max(0.0, run_for - ran), over)

    def _run_over(self, pod: PodState, container: str, started_at: float | None) -> None:
        if pod.stage is not Stage.RUNNING:
            return
        record = self._kubelet.pod(pod.uid)
        state = record.status(record.container(container)[0].name).state
        if isinstance(state, Running) and state.started_at == started_at:
            self._exit(pod, container, pod.play.exit_code)

    def exit(self, uid: str, container: str, exit_code: int, reason: str = "") -> None:
        """A container ends by itself. Raises RequestError for one that does not run."""
        self._exit(self._known(uid), container, exit_code, reason)

    def _exit(self, pod: PodState, container: str, exit_code: int, reason: str = "") -> None:
        with self._changing(pod):
            self._kubelet.exit_container(pod.uid, container, exit_code, reason=reason)

    def _after(self, delay: float, act: Callable[[], None]) -> None:
        when = self._clock.monotonic() + delay
        self._clock.call_at(when, lambda: self._later(act))

    # -- pods that the kubelet ends --------------------------------------------------------

    def end_all(self, reason: str, message: str) -> None:
        """The kubelet ends every pod, each Failed for this reason."""
        for pod in self.pods():
            self._end_soon(pod, reason, message)

    def end(self, uid: str, reason: str, message: str) -> None:
        """The kubelet ends one pod. Raises RequestError if there is none with this UID."""
        self._end_soon(self._known(uid), reason, message)

    def _end_soon(self, pod: PodState, reason: str, message: str) -> None:
        if pod.stage in _ALIVE:
            self._recorder.record(pod.subject, "Warning", reason, message)
            self._later(partial(self._end, pod, reason, message))

    def _end(self, pod: PodState, reason: str, message: str) -> None:
        if pod.stage not in _ALIVE:
            return
        with self._changing(pod):
            self._kubelet.stop_pod(
                pod.uid,
                self._facts.exit_code_on_delete,
                reason=reason,
                message=message,
                disruption=message,
            )
            self._move(pod, Stage.DONE)

    # -- deletion ------------------------------------------------------------------------

    def _delete(self, pod: PodState) -> None:
        """Its containers stop, its last status is told, then it is deleted."""
        if pod.stage in _ALIVE:
            with pod.held(self._lock):
                self._stop(pod)
        if self._move(pod, Stage.LEAVING):
            self._touch(pod)

    def _stop(self, pod: PodState) -> None:
        if self._options.all_events:
            for name in sorted(self._kubelet.pod(pod.uid).running):
                self._tell(pod, "Killing", f"Stopping container {name}")
        self._kubelet.stop_pod(pod.uid, self._facts.exit_code_on_delete)

    def _gone(self, uid: str) -> None:
        """There is no such pod in the API any more."""
        with self._lock:
            pod = self._pods.pop(uid, None)
        if pod is None:
            self._mirrors.gone(uid)
            return
        self._move(pod, Stage.GONE)
        self._let_go(pod)

    def _let_go(self, pod: PodState) -> None:
        if pod.uid in self._kubelet.pods():
            self._kubelet.terminate(pod.uid)

    # -- what is told to the API ------------------------------------------------------------

    @contextmanager
    def _changing(self, pod: PodState) -> Iterator[None]:
        """Tell what has come in the end of what happens within, unless that goes wrong."""
        with pod.held(self._lock):
            yield
        self._touch(pod)

    def _touch(self, pod: PodState) -> None:
        """The pod's status may be another one: tell it, once."""
        with self._lock:
            pod.is_dirty = True
            if pod.holds or pod.is_queued or self._paused or self._closed:
                return
            pod.is_queued = True
        leaves = pod.stage is Stage.LEAVING
        priority = Priority.DELETION if leaves else Priority.POD_STATUS
        self._lane.put(priority, pod.uid, lambda: self._sync(pod))

    def _sync(self, pod: PodState) -> None:
        with self._lock:
            pod.is_queued = pod.is_dirty = False
            stage = pod.stage
            again, pod.is_suspect = pod.is_suspect, False
        if stage is Stage.GONE or self._closed:
            return
        try:
            self._telling.tell(pod, again)
            if stage is Stage.LEAVING:
                self._let_go(pod)
                self._telling.remove(pod)
        except RequestError:
            # The kubelet does not serve in this moment, or knows the pod no more.
            with self._lock:
                pod.is_suspect = True
        except (NotFound, Conflict):
            # It is gone, or another pod has its name by now.
            self._later(partial(self._gone, pod.uid))
        except Forbidden as error:
            self._forbidden(error)
        except Invalid as error:
            self._warn(f"{error} (a bug of ours; the pod's status stays as it is)")

    # -- from time to time ------------------------------------------------------------------

    def look(self) -> None:
        """Put back what somebody else changed, and try again what could not be started."""
        for pod in self.pods():
            if pod.is_suspect:
                self._touch(pod)
            if pod.is_unstarted and pod.stage is Stage.RUNNING:
                pod.is_unstarted = False
                self._later(partial(self._start_again, pod))

    def _start_again(self, pod: PodState) -> None:
        if pod.stage is Stage.RUNNING:
            with self._changing(pod):
                self._kubelet.start_pod(pod.uid)

    def pause(self, paused: bool) -> None:
        """Tell the API nothing until the opposite is said; then all that is new."""
        with self._lock:
            self._paused = paused
        if not paused:
            for pod in self.pods():
                if pod.is_dirty:
                    self._touch(pod)

    def close(self) -> None:
        """Do nothing any more. What is under way comes to its end."""
        self._mirrors.close()
        with self._lock:
            self._closed = True
            self._inbox.clear()

    def pods(self) -> tuple[PodState, ...]:
        """Every pod that the API has on this node, as far as we know."""
        with self._lock:
            return tuple(self._pods.values())

    def _known(self, uid: str) -> PodState:
        pod = self._pods.get(uid)
        if pod is None:
            raise RequestError(f"node {self._node} has no pod with the UID {uid!r}")
        return pod


def _order(object_: JsonObject) -> tuple[bool, str, str]:
    """What ran here first, then by age."""
    metadata = object_["metadata"]
    is_new = not (object_.get("status") or {}).get("startTime")
    return is_new, str(metadata.get("creationTimestamp")), str(metadata["name"])

"""Restart containers that exit, and delete pods gracefully.

Theory of operation. ``exited`` records the exit of a container. ``_after_end`` then handles the
first of these cases that applies:

1. The pod is being deleted: delete it when its last container has exited.
2. A restart rule with the action RestartAllContainers matches the exit code: remove all
   containers of the pod and start them again, immediately.
3. The container must be restarted, by restartPolicy or because it is a sidecar: restart it, the
   first time immediately, later with an exponential backoff (``BackOff``).
4. The container is an init container, but not a sidecar. It gets to this case only if it has
   failed, so the pod fails.
5. No app container runs or will run again: the pod has succeeded or failed.

A timer per container waits for the backoff, and a timer per pod for the grace period of a
deletion. Timers use the kubelet's clock, so a test can advance them. They belong to one kubelet
instance: ``close`` cancels them. In the next instance, ``resume`` immediately restarts the
containers that wait for a restart, because a restarted kubelet has forgotten its backoffs.

Races: a timer can fire while the pod is deleted or the kubelet stops. ``Timers`` calls no callback
once the lifecycle is closed. A callback checks, under the store's lock, that the pod is not
deleted and the container does not run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

import attrs

from devicemanager.core.errors import DeviceManagerError, RequestError
from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.pods import Container
from devicemanager.core.podstatus.containers import (
    KILLED,
    RESTARTING_ALL,
    Running,
    Terminated,
)
from devicemanager.core.podstatus.phase import Phase, phase_of
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.io.clock import Clock
from devicemanager.kubelet.pods.containers import Containers, InitContainerError
from devicemanager.kubelet.pods.records import PodRecord, PodStore, title
from devicemanager.kubelet.pods.timers import Timers

INITIAL, LONGEST = 10.0, 300.0
"""The first and the longest wait before a restart, in seconds (``backOffPeriod``,
``MaxCrashLoopBackOff``, pkg/kubelet/kubelet.go, v1.32)."""
_STABLE = 2 * LONGEST
"""Seconds that a container must run until its backoff is reset."""

Key = TypeVar("Key")


@attrs.define(eq=False, repr=False)
class _Entry:
    seconds: float
    updated_at: float


class BackOff(Generic[Key]):
    """The kubelet's restart backoff: no wait, then 10 s, 20 s, 40 s and so on, up to 5 minutes.

    The class follows ``flowcontrol.Backoff`` (client-go v1.32) as ``doBackOff`` uses it. The
    backoff of a container that ran for more than 10 minutes is reset. Times are seconds of any
    monotonic clock.
    """

    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}

    def wait(self, key: Key, finished_at: float) -> float:
        """Return the seconds from the exit of a container until its restart; 0 for no wait."""
        entry = self._entries.get(key)
        if entry is None or finished_at - entry.updated_at > _STABLE:
            return 0.0
        return entry.seconds

    def starts(self, key: Key, finished_at: float, now: float) -> None:
        """Record that a container is restarted at ``now``, after its exit at ``finished_at``."""
        entry = self._entries.get(key)
        if entry is None or finished_at - entry.updated_at > _STABLE:
            self._entries[key] = _Entry(INITIAL, now)
        else:
            self._entries[key] = _Entry(min(2 * entry.seconds, LONGEST), now)

    def forget(self, key: Key) -> None:
        """Reset the backoff of a container."""
        self._entries.pop(key, None)


def go_seconds(seconds: float) -> str:
    """Format whole seconds as Go prints a duration: ``10s``, ``1m20s``, ``5m0s``."""
    minutes, remainder = divmod(round(seconds), 60)
    return f"{minutes}m{remainder}s" if minutes else f"{remainder}s"


_SHORTEST_GRACE = 1.0
"""Shortest grace period of a deletion, in seconds (``calculateEffectiveGracePeriod``,
pkg/kubelet/pod_workers.go, v1.32)."""

_Key = tuple[PodUid, ContainerName | None]
"""Key of a timer or backoff: a pod and one of its containers, or None for the pod's deletion."""


class ContainerLifecycle:
    """Restarts of containers and deletions of pods in one kubelet instance; thread-safe.

    Backoffs are lost with the instance, as in the kubelet. The next instance immediately restarts
    the containers that wait for a restart.
    """

    def __init__(
        self,
        store: PodStore,
        containers: Containers,
        clock: Clock,
        events: EventStream,
        finish: Callable[[PodRecord, Phase], None],
        remove: Callable[[PodRecord], None],
    ) -> None:
        """``finish`` sets a pod's final phase. ``remove`` deletes a pod. Both functions free the
        devices of the pod."""
        self._store = store
        self._containers = containers
        self._clock = clock
        self._events = events
        self._finish = finish
        self._remove = remove
        self._timers: Timers[_Key] = Timers(clock)
        # Guards _back_off.
        self._lock = threading.Lock()
        self._back_off: BackOff[_Key] = BackOff()

    # -- the end of a container ------------------------------------------------------

    def exited(self, uid: str, name: str, exit_code: int, reason: str) -> None:
        """Record that a container exited, and restart it if the pod's restartPolicy requires it.

        Raises RequestError if the container is not running.
        """
        with self._store.lock:
            record = self._store.known(uid)
            container, _ = record.container(name)
            self._note_end(record, container, exit_code, reason)
        self._after_end(record, container)

    def init_failed(self, record: PodRecord, container: Container) -> None:
        """Restart an init container that has failed, or fail the pod if restartPolicy is Never."""
        self._after_end(record, container)

    def _note_end(
        self, record: PodRecord, container: Container, exit_code: int, reason: str
    ) -> None:
        """Record the exit of a container. Must be called with the store's lock held."""
        state = record.status(container.name).state
        if container.name not in record.running:
            raise RequestError(
                f"container {container.name} of pod {title(record.pod)} is "
                f"{type(state).__name__.lower()}: expected a running container"
            )
        reason = reason or ("Error" if exit_code else "Completed")
        record.ended(container.name, exit_code, reason, self._clock.time())

    def _after_end(self, record: PodRecord, container: Container) -> None:
        # Read first: the backoff counts from the exit, and the report to an NRI plugin can block.
        finished_at = self._clock.monotonic()
        self._containers.stopped(record.pod, container.name)
        ended = record.status(container.name).end
        assert ended is not None
        self._events.publish(
            EventKind.CONTAINER_EXITED,
            f"pod {title(record.pod)} container {container.name} exited with code "
            f"{ended.exit_code} ({ended.reason})",
            pod=record.pod.uid,
            container=container.name,
            exit_code=ended.exit_code,
            reason=ended.reason,
        )
        if record.deletion_grace is not None:
            if not record.running:
                self._end_deletion(record)
        elif record.pod.restarts_all(container, ended.exit_code):
            self._restart_all(record)
        elif record.pod.restarts(container, ended.exit_code):
            self._restart_later(record, container, finished_at)
        elif container in record.pod.init_containers:
            self._finish(record, Phase.FAILED)
        elif (phase := self._last_phase(record)) is not None:
            self._finish(record, phase)

    def _last_phase(self, record: PodRecord) -> Phase | None:
        """Return the pod's final phase if no app container runs or will run again; else None.

        Sidecars do not count: they are stopped after the app containers.
        """
        with self._store.lock:
            apps = {container.name for container in record.pod.containers}
            if record.running & apps:
                return None
            statuses = {name: s for name, s in record.statuses.items() if name in apps}
        phase = phase_of(attrs.evolve(record.pod, init_containers=()), statuses)
        return phase if phase.is_terminal else None

    # -- starting again --------------------------------------------------------------

    def _restart_later(self, record: PodRecord, container: Container, finished_at: float) -> None:
        """Start a container when its backoff ends; if it has already ended, start the container
        now."""
        key = record.pod.uid, container.name
        with self._lock:
            wait = self._back_off.wait(key, finished_at)
        when = finished_at + wait
        # Not by a timer of 0 seconds: the container must be restarted before ``exited`` returns.
        if when <= self._clock.monotonic():
            self._restart(record, container, finished_at)
            return
        message = (
            f"back-off {go_seconds(wait)} restarting failed container={container.name} "
            f"pod={record.pod.name}_{record.pod.namespace}({record.pod.uid})"
        )
        with self._store.lock:
            record.set_waiting(container.name, "CrashLoopBackOff", message)
        self._timers.start_at(key, when, lambda: self._restart(record, container, finished_at))
        self._events.publish(EventKind.CONTAINER_BACK_OFF, message, pod=record.pod.uid)

    def _restart(self, record: PodRecord, container: Container, finished_at: float) -> None:
        key = record.pod.uid, container.name
        if self._timers.closed or not self._may_start(record, container):
            return
        # As in ``doBackOff``, the backoff grows before the start, so failed starts count, too.
        with self._lock:
            self._back_off.starts(key, finished_at, self._clock.monotonic())
        try:
            # Called without a lock: PreStartContainer may block in the plugin.
            self._containers.start(record, container.name)
            if container in record.pod.init_containers and not container.restartable:
                self._start_rest(record)
        except InitContainerError:
            self._after_end(record, container)
        except (DeviceManagerError, ValueError) as error:
            # If the start failed because the pod was deleted, do not report it.
            if self._may_start(record, container):
                self._containers.failed(record, container, error)
                # Retried with the backoff of the container's last exit.
                self._try_again(record, container, finished_at)

    def _try_again(self, record: PodRecord, container: Container, finished_at: float) -> None:
        key = record.pod.uid, container.name
        with self._lock:
            when = finished_at + self._back_off.wait(key, finished_at)
        # The backoff may be over already: the minimum prevents a busy loop.
        when = max(when, self._clock.monotonic() + _SHORTEST_GRACE)
        self._timers.start_at(key, when, lambda: self._restart(record, container, finished_at))

    def _restart_all(self, record: PodRecord) -> None:
        """Remove all containers of a pod, and start them again in order (``computePodActions``,
        pkg/kubelet/kuberuntime, v1.37)."""
        # The removed containers have no backoff.
        self.forget(record)
        with self._store.lock:
            stopped = record.remove_containers()
        for name in stopped:
            self._containers.stopped(record.pod, name)
        self._start_rest(record)

    def _start_rest(self, record: PodRecord) -> None:
        """Start the containers that were removed or never started, in order."""
        for container, is_init in record.pod.all_containers():
            if self._timers.closed or not self._may_start(record, container):
                continue
            ended = record.status(container.name).end
            # A retry leaves containers alone that have run since they were removed.
            if ended is not None and ended.reason != RESTARTING_ALL:
                continue
            try:
                # Called without a lock: PreStartContainer may block in the plugin.
                self._containers.start(record, container.name)
            except InitContainerError:
                self._after_end(record, container)
                return
            except (DeviceManagerError, ValueError) as error:
                if self._may_start(record, container):
                    self._containers.failed(record, container, error)
                    key = record.pod.uid, container.name
                    again = partial(self._start_rest, record)
                    self._timers.start(key, _SHORTEST_GRACE, again)
                if is_init:
                    return

    def _may_start(self, record: PodRecord, container: Container) -> bool:
        with self._store.lock:
            return (
                self._store.is_current(record)
                and record.is_active
                and record.deletion_grace is None
                and record.ending is None
                and container.name not in record.running | record.finished
            )

    def resume(self, record: PodRecord) -> None:
        """Continue with a pod whose containers an earlier kubelet instance started.

        If the pod is being deleted, its grace period begins again, and no container is started.
        Otherwise, containers that wait for a restart are started. Containers that exited in the
        meantime are started if the restartPolicy requires it.
        """
        grace = record.deletion_grace
        if grace is not None:
            self._await_deletion(record, grace)
            return
        now = self._clock.monotonic()
        for container, is_init in record.pod.all_containers():
            status = record.statuses.get(container.name)
            if status is None or isinstance(status.state, Running):
                continue
            if is_init and not container.restartable:
                continue
            ended = status.state if isinstance(status.state, Terminated) else None
            if ended is None or record.pod.restarts(container, ended.exit_code):
                self._restart(record, container, now)

    # -- deletion --------------------------------------------------------------------

    def delete(self, uid: str, grace: float) -> None:
        """Delete a pod when its containers have exited, but at the latest after ``grace`` seconds.

        The kubelet's minimum is 1 second; a smaller ``grace`` counts as 1.
        """
        grace = max(grace, _SHORTEST_GRACE)
        with self._store.lock:
            record = self._store.known(uid)
            before = record.deletion_grace
            # As in the kubelet, a second deletion can only shorten the grace period.
            is_shorter = before is None or grace < before
            if is_shorter:
                record.deletion_grace = grace
                record.deletion_time = self._clock.time() + grace
        if before is None:
            self._events.publish(
                EventKind.DELETING,
                f"pod {title(record.pod)} is to be deleted: its containers have "
                f"{go_seconds(grace)} to end",
                pod=record.pod.uid,
            )
        # A pod that is being deleted restarts no containers.
        self.forget(record)
        if is_shorter:
            self._await_deletion(record, grace)

    def _await_deletion(self, record: PodRecord, grace: float) -> None:
        if not record.running:
            self._end_deletion(record)
            return
        self._timers.start((record.pod.uid, None), grace, lambda: self._kill(record))

    def _kill(self, record: PodRecord) -> None:
        """End all containers that are still running after the grace period, as SIGKILL does."""
        with self._store.lock:
            if not self._store.is_current(record):
                return
            running = [
                container
                for container, _ in record.pod.all_containers()
                if container.name in record.running
            ]
            for container in running:
                self._note_end(record, container, KILLED, "Error")
        for container in running:
            self._after_end(record, container)

    def _end_deletion(self, record: PodRecord) -> None:
        if not self._timers.closed:
            self._remove(record)

    # -- timers ----------------------------------------------------------------------

    def forget(self, record: PodRecord) -> None:
        """Cancel the pod's timers and reset its backoffs."""
        names = [None, *(container.name for container, _ in record.pod.all_containers())]
        self._timers.cancel(*((record.pod.uid, name) for name in names))
        with self._lock:
            for name in names[1:]:
                self._back_off.forget((record.pod.uid, name))

    def close(self) -> None:
        """Cancel all timers, and wait for callbacks in progress."""
        self._timers.close()

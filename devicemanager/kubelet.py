"""MockKubelet: everything together in one directory.

One object lives through restarts and reboots; each time the kubelet's side starts anew
there is a new ``_Incarnation`` with its own manager and servers, as there is a new
process on a node.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from devicemanager import manifests
from devicemanager.clock import Clock, SystemClock
from devicemanager.core import texts
from devicemanager.core.allocator import PodAllocation
from devicemanager.core.errors import (
    AllocationError,
    DeviceManagerError,
    Refused,
    RequestError,
    refused_by_allocation,
)
from devicemanager.core.ids import PodUid
from devicemanager.core.names import is_extended_resource_name
from devicemanager.core.pods import Container, Pod
from devicemanager.core.runoptions import RunOptions
from devicemanager.events import Event, EventKind, EventStream
from devicemanager.incarnation import Incarnation
from devicemanager.layout import Layout
from devicemanager.manager import Manager
from devicemanager.outcome import Admission, ContainerOutcome, affinity_nodes, merged_options
from devicemanager.podsource import Shown
from devicemanager.podstore import PodRecord, PodStore, title
from devicemanager.settings import Settings

__all__ = ["MockKubelet", "WaitTimeout"]

_SHOWN_EVENTS = 20


class WaitTimeout(DeviceManagerError, AssertionError):
    """What was waited for did not happen; the text says what did."""


class MockKubelet:
    """A kubelet's device manager, PodResources API and plugin watcher under ``root``.

    Use it as a context manager, or call ``start`` and ``stop``. Without a root it makes a
    short directory of its own and removes it at ``stop``. Everything may be called from
    any thread.

    Raises TopologyConfigError for topology settings that the kubelet would refuse.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.clock = clock or SystemClock()
        self.events = EventStream(self.clock)
        self._own_root = root is None
        self._layout = Layout(Path(root) if root is not None else Path())
        # Guards the fields below. Never held over an admission or a server's start.
        self._lock = threading.Lock()
        self._pods = PodStore()
        self._pods_version = 0
        self._shown_pods: Shown | None = None
        self._incarnation: Incarnation | None = None
        self._errors: list[Exception] = []
        # The containers of pods that only the checkpoint knows: running unless rebooted.
        self._containers_survive = True
        Manager(self.settings)  # refuses bad settings now, not at start

    # -- where things are ------------------------------------------------------------

    @property
    def root(self) -> Path:
        """The kubelet's directory."""
        return self._layout.root

    @property
    def plugin_dir(self) -> Path:
        """``<root>/device-plugins``: plugins put their sockets here."""
        return self._layout.plugin_dir

    @property
    def plugin_socket(self) -> Path:
        """The Registration service, ``kubelet.sock`` in ``plugin_dir``."""
        return self._layout.plugin_socket

    @property
    def pod_resources_socket(self) -> Path:
        """The PodResources service."""
        return self._layout.pod_resources_socket

    @property
    def plugins_registry_dir(self) -> Path:
        """Plugins that wait to be found put their sockets here."""
        return self._layout.plugins_registry_dir

    @property
    def checkpoint_path(self) -> Path:
        """``kubelet_internal_checkpoint`` in ``plugin_dir``."""
        return self._layout.checkpoint_path

    # -- life ------------------------------------------------------------------------

    def start(self) -> Self:
        """Serve. Raises StartError with one line if that is not possible here."""
        with self._lock:
            if self._incarnation is not None:
                raise RequestError("the kubelet runs already: stop it first")
            if self._own_root and self._layout.root == Path():
                self._layout = Layout(Path(tempfile.mkdtemp(prefix="dm-", dir="/tmp")))
        incarnation = Incarnation(
            self._layout, self.settings, self.clock, self.events, self._shown, self._failed
        )
        incarnation.start()
        with self._lock:
            self._incarnation = incarnation
        self.events.publish(EventKind.STARTED, f"kubelet serves {self.plugin_socket}")
        return self

    def stop(self) -> None:
        """Stop serving. Pods and their containers stay as they are. Stopping twice does
        nothing."""
        with self._lock:
            incarnation, self._incarnation = self._incarnation, None
        if incarnation is None:
            return
        incarnation.stop()
        self.events.publish(EventKind.STOPPED, "kubelet stopped")
        if self._own_root:
            shutil.rmtree(self.root, ignore_errors=True)
            self._layout = Layout(Path())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def restart(self) -> None:
        """The kubelet's process starts anew; containers keep running, plugins find a new
        ``kubelet.sock`` and have to register again."""
        self._again()

    def reboot(self) -> None:
        """The node starts anew: no container runs, so every pod is admitted again. With
        its plugin not back it is refused, unless ``Settings.wait_for_plugin`` allows the
        time (Q6)."""
        with self._lock:
            self._containers_survive = False
            for record in self._pods:
                record.running.clear()
                record.finished.clear()
        self._again()

    def _again(self) -> None:
        own_root, self._own_root = self._own_root, False
        try:
            self.stop()
        finally:
            self._own_root = own_root
        self.start()
        for record in self._pods:
            if record.is_active:
                self._readmit(record)
        self.sources_ready()

    def sources_ready(self) -> None:
        """All pods of the node are known now: devices of others are freed.

        A kubelet on a directory with a checkpoint frees nothing until it knows the pods
        the checkpoint names. That is so when each was admitted again, or from this call.
        """
        with self._lock:
            active = self._pods.active()
        self.manager.sources_ready(active)

    @property
    def manager(self) -> Manager:
        """The device manager of the running kubelet. Raises RequestError if it is stopped."""
        incarnation = self._incarnation
        if incarnation is None:
            raise RequestError("the kubelet is not running: start it, or use it in a with block")
        return incarnation.manager

    # -- pods ------------------------------------------------------------------------

    def admit(self, manifest: manifests.Source, *, start: bool = True) -> Admission:
        """Admit a pod: a manifest as dict, YAML text or path, or a ``kubernetes`` V1Pod.

        With ``start`` its containers are started, too: init containers in order, then app
        containers, with PreStartContainer where the plugin asks for it.

        A refusal is an answer (``admitted`` false, with the kubelet's reason and message).
        Raises ManifestError for a manifest the API server would not take, and
        RequestError for a pod that is admitted already.
        """
        pod = manifests.parse(manifest)
        manager = self.manager
        with self._lock:
            record = self._pods.add(pod)
            known_before = not manager.is_sources_ready and bool(manager.holdings(pod.uid))
            if known_before and self._containers_survive:
                record.all_started()
        admission = self._admit(manager, record)
        if admission.admitted and start and not record.running:
            admission = self._start_all(record, admission)
        if known_before:
            self._check_sources(manager)
        return admission

    def _admit(self, manager: Manager, record: PodRecord) -> Admission:
        pod = record.pod
        try:
            self._check_known(manager, pod)
            situation = record.situation(manager.is_sources_ready, self.settings.quirks)
            allocation = manager.admit(pod, situation)
        except Refused as refused:
            return self._refuse(manager, record, refused)
        except BaseException:
            with self._lock:
                self._pods.remove(pod.uid)
            raise
        record.admitted = True
        self._pods_changed()
        self.events.publish(EventKind.ADMITTED, f"pod {title(pod)} admitted", pod=pod.uid)
        return self._admission(manager, pod, allocation)

    def _admission(self, manager: Manager, pod: Pod, allocation: PodAllocation) -> Admission:
        held = manager.holdings(pod.uid)
        containers: dict[str, ContainerOutcome] = {
            container.name: ContainerOutcome(
                container.name,
                held.get(container.name, {}),
                affinity_nodes(allocation.affinities.get(container.name)),
            )
            for container, _ in pod.all_containers()
        }
        return Admission(pod, True, containers=containers)

    def _refuse(self, manager: Manager, record: PodRecord, refused: Refused) -> Admission:
        pod = record.pod
        with self._lock:
            record.fail(refused.reason, refused.message)
        manager.deactivate(pod.uid)
        self._pods_changed()
        self.events.publish(EventKind.REFUSED, f"pod {title(pod)} refused: {refused}", pod=pod.uid)
        return Admission(pod, False, refused.reason, refused.message)

    def _check_known(self, manager: Manager, pod: Pod) -> None:
        """A resource nobody registered: refused if it was declared to us, else the pod
        runs without it, as with the reference, and a warning says so (Q14)."""
        for container, _ in pod.all_containers():
            for resource, count in container.limits.items():
                if not count or not is_extended_resource_name(resource):
                    continue
                if manager.is_known(resource):
                    continue
                if self.settings.strict or resource in self.settings.declared_resources:
                    text = texts.UNREGISTERED.format(resource=resource)
                    raise refused_by_allocation(AllocationError(text))
                self.events.publish(
                    EventKind.UNKNOWN_RESOURCE,
                    f"pod {title(pod)} container {container.name} asks for {resource}, which "
                    "no plugin registered: it runs without",
                    resource=resource,
                    pod=pod.uid,
                )

    def _readmit(self, record: PodRecord) -> None:
        manager = self.manager
        if not record.running and self.settings.wait_for_plugin:
            self._wait_for_plugins(record.pod)
        was_running = bool(record.running)
        admission = self._admit(manager, record)
        if admission.admitted and not was_running:
            self._start_all(record, admission)

    def _wait_for_plugins(self, pod: Pod) -> None:
        held = self.manager.holdings(pod.uid)
        resources = {resource for by_resource in held.values() for resource in by_resource}

        def back() -> bool:
            allocatable = self.allocatable()
            return all(allocatable.get(resource) for resource in resources)

        self.events.wait_for(back, self.settings.wait_for_plugin)

    def _check_sources(self, manager: Manager) -> None:
        """Once every pod of the checkpoint was admitted again, all are known."""
        with self._lock:
            known = {record.pod.uid for record in self._pods}
        if not manager.is_sources_ready and manager.pods() <= known:
            self.sources_ready()

    def terminate(self, uid: str) -> None:
        """The pod ends and is deleted: its devices are free. Raises RequestError if no pod
        has this UID."""
        with self._lock:
            record = self._pods.known(uid)
            self._pods.remove(record.pod.uid)
        self.manager.release(record.pod.uid)
        self._pods_changed()
        self.events.publish(
            EventKind.TERMINATED, f"pod {title(record.pod)} terminated", pod=record.pod.uid
        )

    # -- containers ------------------------------------------------------------------

    def start_container(self, uid: str, container: str) -> RunOptions:
        """Start a container of an admitted pod: PreStartContainer where the plugin asks for
        it, then the merged settings of all its resources.

        Devices are allocated now if nothing is recorded. Raises AllocationError with the
        kubelet's text if the container must not start, RequestError for an unknown pod or
        container or a pod that was refused.
        """
        with self._lock:
            record = self._pods.known(uid)
            wanted, is_init = record.container(container)
            if not record.is_active:
                raise RequestError(f"pod {title(record.pod)} has failed: {record.message}")
        manager = self.manager
        self._allocate_missing(manager, record.pod, wanted, is_init)
        manager.pre_start(record.pod.uid, wanted.name)
        options = merged_options(manager.holdings(record.pod.uid).get(wanted.name, {}))
        self._report_start(record, wanted, options)
        with self._lock:
            record.started(wanted, is_init)
        return options

    restart_container = start_container
    """A container restart gets the same devices, with no second Allocate."""

    def _allocate_missing(
        self, manager: Manager, pod: Pod, container: Container, is_init: bool
    ) -> None:
        held = manager.holdings(pod.uid).get(container.name, {})
        wanted = (name for name, count in container.limits.items() if count and name not in held)
        if any(manager.is_known(name) for name in wanted):
            try:
                manager.allocate_now(pod, container, is_init)
            except Refused as refused:
                raise AllocationError(refused.message) from refused
            self._pods_changed()

    def _report_start(self, record: PodRecord, container: Container, options: RunOptions) -> None:
        for conflict in options.conflicts:
            self.events.publish(
                EventKind.CONFLICT,
                f"pod {title(record.pod)} container {container.name}: {conflict}",
                pod=record.pod.uid,
            )
        self.events.publish(
            EventKind.CONTAINER_STARTED,
            f"pod {title(record.pod)} container {container.name} started",
            pod=record.pod.uid,
        )

    def _start_all(self, record: PodRecord, admission: Admission) -> Admission:
        """Start every container in order; an init container that fails stops the rest."""
        outcomes = dict(admission.containers)
        for container, is_init in record.pod.all_containers():
            try:
                self.start_container(record.pod.uid, container.name)
            except (DeviceManagerError, ValueError) as error:
                outcomes[container.name] = ContainerOutcome(
                    container.name,
                    outcomes[container.name].holdings,
                    outcomes[container.name].affinity,
                    error=str(error),
                )
                self.events.publish(
                    EventKind.CONTAINER_FAILED,
                    f"pod {title(record.pod)} container {container.name} did not start: {error}",
                    pod=record.pod.uid,
                )
                if is_init:
                    break
        return Admission(record.pod, True, containers=outcomes)

    # -- reading ---------------------------------------------------------------------

    def capacity(self) -> dict[str, int]:
        """Devices per resource, healthy or not. Forgets resources whose plugin has been
        gone for longer than the grace period."""
        return dict(self.manager.capacity().capacity)

    def allocatable(self) -> dict[str, int]:
        """Healthy devices per resource, in use or not."""
        return dict(self.manager.capacity().allocatable)

    def devices(self, uid: str) -> dict[str, dict[str, list[str]]]:
        """What a pod holds: container → resource → sorted device ids."""
        return {
            container: {name: sorted(holding.ids) for name, holding in held.items()}
            for container, held in self.manager.holdings(PodUid(uid)).items()
        }

    def pods(self) -> dict[str, PodRecord]:
        """The pods that are known and not deleted, by UID, in the order they came."""
        with self._lock:
            return {record.pod.uid: record for record in self._pods}

    @property
    def health_updates(self) -> queue.Queue[PodUid]:
        """UIDs of pods whose devices changed health, oldest first."""
        return self.manager.health_updates

    # -- waiting ---------------------------------------------------------------------

    def wait_for_resource(
        self, resource: str, count: int | None = None, timeout: float = 10.0
    ) -> None:
        """Wait until ``count`` devices of the resource are allocatable (None: any).

        Raises WaitTimeout after ``timeout`` seconds, with what did happen.
        """

        def there() -> bool:
            found = self.allocatable().get(resource, 0)
            return found > 0 if count is None else found == count

        wanted = "any" if count is None else str(count)
        self.wait_for(there, timeout, f"{wanted} allocatable devices of {resource}")

    def wait_for(
        self, condition: Callable[[], bool], timeout: float = 10.0, what: str = "the condition"
    ) -> None:
        """Wait until ``condition()`` holds; it is looked at again after every event.

        Raises WaitTimeout after ``timeout`` seconds, with what did happen.
        """
        if not self.events.wait_for(condition, timeout):
            raise WaitTimeout(f"waited {timeout:g} s for {what}; {self._story()}")

    def wait_for_event(
        self, *kinds: EventKind, resource: str | None = None, timeout: float = 10.0
    ) -> Event:
        """Wait until an event of one of these kinds has happened, and return the latest."""

        def found() -> list[Event]:
            events = self.events.recent(*kinds)
            return [e for e in events if resource is None or e.resource == resource]

        names = " or ".join(kind.value for kind in kinds)
        suffix = f" of {resource}" if resource else ""
        self.wait_for(lambda: bool(found()), timeout, f"the event {names}{suffix}")
        return found()[-1]

    def _story(self) -> str:
        events = self.events.recent()[-_SHOWN_EVENTS:]
        lines = [f"  {event}" for event in events] or ["  nothing"]
        with contextlib.suppress(DeviceManagerError):
            lines.append(f"  allocatable now: {self.allocatable()}")
        return "what did happen:\n" + "\n".join(lines)

    # -- what goes wrong on server threads ---------------------------------------------

    def check(self) -> None:
        """Raise the first error that happened on a server thread, if there was one."""
        with self._lock:
            errors, self._errors = self._errors, []
        if errors:
            raise errors[0]

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self._errors.append(error)
        self.events.publish(EventKind.SERVER_ERROR, f"on a server thread: {error!r}")

    # -- for PodResources --------------------------------------------------------------

    def _pods_changed(self) -> None:
        with self._lock:
            self._pods_version += 1
            self._shown_pods = None

    def _shown(self) -> Shown:
        shown = self._shown_pods
        if shown is None:
            with self._lock:
                admitted = [record for record in self._pods if record.admitted]
                shown = self._shown_pods = Shown(
                    self._pods_version,
                    tuple(record.pod for record in admitted if record.is_active),
                    tuple(record.pod for record in admitted if not record.is_active),
                )
        return shown

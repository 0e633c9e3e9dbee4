"""Start the containers of a pod.

A container starts in the kubelet's order (``generateContainerConfig`` and
``GetDeviceRunContainerOptions``, v1.32): PreStartContainer of its plugins, then an allocation
for resources that have none, then the claims, then the merged settings. Each step can block in
a plugin, and the pod can be deleted meanwhile. Therefore ``_check_there`` runs after each step;
it also frees what the step allocated, because the deletion has already freed the pod's devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from devicemanager.claims.lazy_claims import LazyClaims
from devicemanager.core.errors import AllocationError, DeviceManagerError, RequestError
from devicemanager.core.pods import Container, Pod
from devicemanager.core.rejection import Rejected
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.pods.options import CdiRules
from devicemanager.kubelet.pods.records import PodRecord, PodStore, title

if TYPE_CHECKING:
    from devicemanager.core.runoptions import RunOptions
    from devicemanager.kubelet.pods.admission import Admission


class Containers:
    """Starter of the containers of admitted pods; thread-safe."""

    def __init__(
        self,
        store: PodStore,
        manager: DeviceManager,
        events: EventStream,
        claims: LazyClaims,
        cdi: CdiRules | None = None,
    ) -> None:
        self._cdi = cdi or CdiRules()
        self._store = store
        self._manager = manager
        self._events = events
        self._claims = claims

    def start(self, record: PodRecord, name: str) -> RunOptions:
        """Start one container by name. Raises RequestError and AllocationError."""
        container, is_init = record.container(name)
        self._check_starts(record)
        return self._start(record, container, is_init)

    def start_all(self, record: PodRecord, admission: Admission) -> Admission:
        """Start every container in order. If an init container fails, the rest are not started."""
        outcomes = dict(admission.containers)
        for container, is_init in record.pod.all_containers():
            outcome = outcomes[container.name]
            try:
                options = self._start(record, container, is_init)
                outcomes[container.name] = attrs.evolve(outcome, options=options)
            except (DeviceManagerError, ValueError) as error:
                outcomes[container.name] = attrs.evolve(outcome, error=str(error))
                self.failed(record, container, error)
                if is_init:
                    break
        return attrs.evolve(admission, containers=outcomes)

    def start_rest(self, record: PodRecord) -> None:
        """Start every container that was never started, in order.

        A container that cannot be started waits; if it is an init container, so do the rest.
        Raises RequestError if the pod has ended or is being deleted.
        """
        for container, is_init in record.pod.all_containers():
            if record.status(container.name).was_started:
                continue
            self._check_starts(record)
            try:
                self._start(record, container, is_init)
            except (DeviceManagerError, ValueError) as error:
                self.failed(record, container, error)
                if is_init:
                    break

    def _check_starts(self, record: PodRecord) -> None:
        if not record.is_active:
            why = f": {record.message}" if record.message else ""
            raise RequestError(f"pod {title(record.pod)} has {record.phase.lower()}{why}")
        if record.deletion_grace is not None:
            raise RequestError(f"pod {title(record.pod)} is being deleted: no container is started")

    def failed(self, record: PodRecord, container: Container, error: Exception) -> None:
        """Record and report that a container could not be started."""
        with self._store.lock:
            # The reason of a failed generateContainerConfig (kuberuntime_container.go, v1.32).
            record.set_waiting(container.name, "CreateContainerConfigError", str(error))
        self._events.publish(
            EventKind.CONTAINER_FAILED,
            f"pod {title(record.pod)} container {container.name} did not start: {error}",
            pod=record.pod.uid,
        )

    def is_gone(self, record: PodRecord) -> bool:
        """True if the pod was deleted. If so, free what it was allocated since: nothing else
        would."""
        current = self._store.get(record.pod.uid)
        if current is None:
            self._manager.release(record.pod.uid)
            self._claims.remove_pods(record.pod.uid)
            self._claims.flush()
        return current is not record

    def _start(self, record: PodRecord, container: Container, is_init: bool) -> RunOptions:
        pod = record.pod
        # The kubelet's order. If a plugin requires PreStartContainer and has no
        # recorded devices, that call fails first, and Allocate is never reached.
        self._check_there(record)
        requested = [name for name, count in container.limits.items() if count]
        self._manager.pre_start(pod.uid, container.name, requested)
        self._check_there(record)
        self._allocate_missing(pod, container, is_init)
        self._check_there(record)
        self._claims.prepare(pod)
        held = self._manager.holdings(pod.uid).get(container.name, {})
        options = self._cdi.options(held, pod.uid, container.name)
        problem = self._cdi.problem(options, pod.uid, container.name)
        options = _with_cdi(options, self._claims.cdi_devices(pod, container.name))
        with self._store.lock:
            # Under the store's lock, because a reader of the record must see all its fields change
            # at once.
            record.started(container, is_init, self._manager.clock.time())
        where = f"pod {title(pod)} container {container.name}"
        for conflict in options.conflicts:
            self._events.publish(EventKind.CONFLICT, f"{where}: {conflict}", pod=pod.uid)
        if problem:
            text = f"{where}: no annotation for its CDI devices: {problem}"
            self._events.publish(EventKind.CONFLICT, text, pod=pod.uid)
        self._events.publish(EventKind.CONTAINER_STARTED, f"{where} started", pod=pod.uid)
        return options

    def _check_there(self, record: PodRecord) -> None:
        if self.is_gone(record):
            raise RequestError(f"pod {title(record.pod)} was deleted meanwhile")

    def _allocate_missing(self, pod: Pod, container: Container, is_init: bool) -> None:
        """Allocate resources without a recorded allocation (``GetDeviceRunContainerOptions``,
        v1.32)."""
        held = self._manager.holdings(pod.uid).get(container.name, {})
        wanted = [name for name, count in container.limits.items() if count and name not in held]
        # Resources that no plugin ever registered were warned of at admission.
        if not any(self._manager.is_known(name) for name in wanted):
            return
        try:
            self._manager.allocate_now(pod, container, is_init)
        except Rejected as rejected:
            raise AllocationError(str(rejected.cause or rejected.message)) from rejected


def _with_cdi(options: RunOptions, names: tuple[str, ...]) -> RunOptions:
    """Append the CDI devices of claims to those of plugins (``GetResources``,
    pkg/kubelet/cm/container_manager_linux.go, v1.32)."""
    if not names:
        return options
    together = tuple(dict.fromkeys((*options.cdi_devices, *names)))
    return attrs.evolve(options, cdi_devices=together)

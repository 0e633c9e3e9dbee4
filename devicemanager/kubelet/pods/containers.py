"""Start the containers of a pod.

The steps follow the kubelet (``generateContainerConfig`` and ``GetDeviceRunContainerOptions``,
v1.32): call PreStartContainer of the plugins, allocate resources that have no recorded devices,
prepare the claims, merge the settings. Each step can block in a plugin, and the pod can be deleted
in the meantime. Therefore ``_check_exists`` runs after each step. If the pod was deleted,
``_check_exists`` frees what the step allocated: the deletion freed only the devices that the pod
had before.

The settings of a container are its environment variables, mounts, devices and annotations. They
come from the Allocate responses of plugins and from claims.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from devicemanager.claims.lazy_claims import LazyClaims
from devicemanager.core.errors import (
    AllocationError,
    DeviceManagerError,
    PermanentError,
    RequestError,
)
from devicemanager.core.pods import Container, Pod
from devicemanager.core.rejection import Rejected
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.pods.dra import LazyDra, PodDra
from devicemanager.kubelet.pods.options import CdiRules
from devicemanager.kubelet.pods.records import PodRecord, PodStore, title
from devicemanager.kubelet.pods.runtime import ContainerRuntime
from devicemanager.kubelet.pods.sandboxes import Sandboxes

if TYPE_CHECKING:
    from devicemanager.core.runoptions import RunOptions
    from devicemanager.kubelet.pods.admission import Admission


class ImagePullError(DeviceManagerError):
    """Error for an image that cannot be pulled (``ErrImagePull``)."""


class InitContainerError(DeviceManagerError):
    """Error for an init container that exited with a code other than 0."""


class Containers:
    """Starter of the containers of admitted pods; thread-safe."""

    def __init__(
        self,
        store: PodStore,
        manager: DeviceManager,
        events: EventStream,
        claims: LazyClaims,
        dra: LazyDra[PodDra],
        sandboxes: Sandboxes,
        fail: Callable[[PodRecord, PermanentError], None],
        init_failed: Callable[[PodRecord, Container], None],
        runtime: ContainerRuntime,
        cdi: CdiRules | None = None,
    ) -> None:
        """``fail`` ends a pod whose sandbox can never be created. ``init_failed`` restarts an init
        container that has failed, or fails its pod."""
        self._fail = fail
        self._init_failed = init_failed
        self._cdi = cdi or CdiRules()
        self._runtime = runtime
        self._dra = dra
        self._sandboxes = sandboxes
        self._store = store
        self._manager = manager
        self._events = events
        self._claims = claims

    def start(self, record: PodRecord, name: str) -> RunOptions:
        """Start one container by name, and return the settings that it was started with.

        Raises RequestError if the container is unknown, or if the pod has ended or is being
        deleted. Raises AllocationError if a plugin fails, and DraError if the pod's claims cannot
        be prepared.
        """
        container, is_init = record.container(name)
        self._check_starts(record)
        self._create_sandbox(record)
        return self._start(record, container, is_init)

    def options(self, record: PodRecord, name: str) -> RunOptions:
        """Return the settings that a container got at its last start.

        Raises RequestError if the container is unknown or was never started.
        """
        from devicemanager.core.runoptions import RunOptions

        container, _ = record.container(name)
        if not record.status(container.name).was_started:
            raise RequestError(
                f"container {name} of pod {title(record.pod)} was not started: start it first"
            )
        return record.run_options.get(container.name) or RunOptions()

    def start_all(self, record: PodRecord, admission: Admission) -> Admission:
        """Start all containers of a pod in order.

        Returns the admission with the result of each start: the settings of the container, or the
        error.

        If an init container cannot be started, no further container is started. If the pod's
        sandbox cannot be created, no container is started. The next periodic sync then tries again,
        except after a permanent error.
        """
        outcomes = dict(admission.containers)
        if text := self._sandbox_error(record):
            outcomes = {name: attrs.evolve(each, error=text) for name, each in outcomes.items()}
            return attrs.evolve(admission, containers=outcomes)
        for container, is_init in record.pod.all_containers():
            outcome = outcomes[container.name]
            try:
                options = self._start(record, container, is_init)
                outcomes[container.name] = attrs.evolve(outcome, options=options)
                if record.uses_dra:
                    # The devices are known only now: drivers choose what a container gets.
                    outcomes[container.name] = attrs.evolve(
                        outcomes[container.name],
                        claims=self._dra.devices(record.pod, container.name),
                    )
            except (DeviceManagerError, ValueError) as error:
                outcomes[container.name] = attrs.evolve(outcome, error=str(error))
                self.failed(record, container, error)
                if is_init:
                    break
        return attrs.evolve(admission, containers=outcomes)

    def start_remaining(self, record: PodRecord) -> None:
        """Start, in order, every container that was never started, and init containers that have
        failed.

        A container that cannot be started stays waiting; call this method again to retry. If an
        init container cannot be started, no further container is started. Raises RequestError if
        the pod has ended or is being deleted.
        """
        self._check_starts(record)
        if not self._sandbox_error(record):
            self._start_each(record, only_new=True)

    def start_again(self, record: PodRecord) -> None:
        """Start all containers in a new sandbox. Errors are handled as in ``start_remaining``."""
        self._check_starts(record)
        if not self._sandbox_error(record):
            self._start_each(record, only_new=False)

    def start_ephemeral(self, record: PodRecord) -> None:
        """Start the ephemeral containers of a pod that were never started.

        Do nothing if the pod has no sandbox, has ended or is being deleted. Without a sandbox,
        ``start_remaining`` starts these containers later.
        """
        if not record.has_sandbox or not record.is_active or record.is_ending:
            return
        for container in record.pod.ephemeral_containers:
            if not record.status(container.name).was_started:
                try:
                    self._start(record, container, is_init=False)
                except (DeviceManagerError, ValueError) as error:
                    self.failed(record, container, error)

    def _start_each(self, record: PodRecord, *, only_new: bool) -> None:
        for container, is_init in record.pod.all_containers():
            was_started = record.status(container.name).was_started
            if only_new and was_started and not record.waits_for_init(container, is_init):
                continue
            # Checked for each container: a start can block in a plugin, and the pod can end in the
            # meantime.
            self._check_starts(record)
            try:
                self._start(record, container, is_init)
            except (DeviceManagerError, ValueError) as error:
                self.failed(record, container, error)
                if is_init:
                    break
        self.start_ephemeral(record)

    def _sandbox_error(self, record: PodRecord) -> str:
        """Create the pod's sandbox, and return an empty text. On failure, schedule a retry and
        return the error text. A permanent error is not retried."""
        try:
            self._create_sandbox(record)
        except PermanentError as error:
            return str(error)
        except DeviceManagerError as error:
            self._sandboxes.retry(record, error, lambda: self._retry(record))
            return str(error)
        return ""

    def _create_sandbox(self, record: PodRecord) -> None:
        """Create the pod's sandbox. A permanent error fails the pod (KEP-5322)."""
        try:
            self._sandboxes.create(record)
        except PermanentError as error:
            self._fail(record, error)
            raise

    def _retry(self, record: PodRecord) -> None:
        with contextlib.suppress(RequestError):  # the pod has ended meanwhile
            self.start_remaining(record)

    def _check_starts(self, record: PodRecord) -> None:
        if not record.is_active:
            why = f": {record.message}" if record.message else ""
            raise RequestError(
                f"cannot start a container: pod {title(record.pod)} has {record.phase.lower()}{why}"
            )
        if record.deletion_grace is not None:
            raise RequestError(
                f"cannot start a container of pod {title(record.pod)}: the pod is being deleted"
            )
        if record.ending is not None:
            raise RequestError(
                f"cannot start a container of pod {title(record.pod)}: the pod is ending, and only "
                "waits until its claims are unprepared"
            )

    def failed(self, record: PodRecord, container: Container, error: Exception) -> None:
        """Record that a container could not be started, or that an init container has failed."""
        if isinstance(error, InitContainerError):
            self._init_failed(record, container)
            return
        with self._store.lock:
            # The reason of a failed generateContainerConfig (kuberuntime_container.go, v1.32).
            reason = "CreateContainerConfigError"
            if isinstance(error, ImagePullError):
                reason = "ImagePullBackOff" if container.name in record.statuses else "ErrImagePull"
            record.set_waiting(container.name, reason, str(error))
        self._events.publish(
            EventKind.CONTAINER_FAILED,
            f"pod {title(record.pod)} container {container.name} did not start: {error}",
            pod=record.pod.uid,
        )

    def is_gone(self, record: PodRecord) -> bool:
        """True if the pod was deleted.

        A start that is still in progress can allocate devices and claims to a deleted pod. This
        method frees them, unless a new pod has the same UID.
        """
        current = self._store.get(record.pod.uid)
        if current is None:
            self._manager.release(record.pod.uid)
            self._claims.remove_pods(record.pod.uid)
            self._claims.flush()
        return current is not record

    def _start(self, record: PodRecord, container: Container, is_init: bool) -> RunOptions:
        pod = record.pod
        # The kubelet's order: if a plugin requires PreStartContainer and the container has no
        # recorded devices, PreStartContainer fails and Allocate is never called.
        self._check_exists(record)
        if record.pull_fails and not record.status(container.name).was_started:
            raise ImagePullError(f'Failed to pull image "{container.image}"')
        # The claims come first, as in ``GetResources`` (v1.32): if they fail, no device plugin gets
        # a call.
        of_claims = self._dra.cdi_devices(pod, container.name) if record.uses_dra else ()
        # ``GetDeviceRunContainerOptions`` skips limits of 0, too.
        requested = [name for name, count in container.limits.items() if count]
        self._manager.pre_start(pod.uid, container.name, requested)
        self._check_exists(record)
        self._allocate_missing(pod, container, is_init)
        self._check_exists(record)
        self._claims.prepare(pod)
        held = self._manager.holdings(pod.uid).get(container.name, {})
        options = self._cdi.options(held, pod.uid, container.name)
        problem = self._cdi.problem(options, pod.uid, container.name)
        options = _with_cdi(options, self._claims.cdi_devices(pod, container.name))
        if of_claims:
            # Repeats remain, as in the kubelet.
            options = attrs.evolve(options, cdi_devices=(*of_claims, *options.cdi_devices))
        adjusted = self._create(record, container, is_init, options)
        with self._store.lock:
            # With the store's lock held, because readers must see all changes of the record
            # together.
            record.started(container, is_init, self._manager.clock.time())
            if of_claims:
                record.cdi_devices = {**record.cdi_devices, container.name: of_claims}
            if held or options.cdi_devices or adjusted is not options:
                record.run_options = {**record.run_options, container.name: adjusted}
        where = f"pod {title(pod)} container {container.name}"
        for conflict in options.conflicts:
            self._events.publish(EventKind.CONFLICT, f"{where}: {conflict}", pod=pod.uid)
        if problem:
            text = f"{where}: no annotation for its CDI devices: {problem}"
            self._events.publish(EventKind.CONFLICT, text, pod=pod.uid)
        self._events.publish(EventKind.CONTAINER_STARTED, f"{where} started", pod=pod.uid)
        if record.waits_for_init(container, is_init):
            raise InitContainerError(f"{where} has failed")
        return adjusted

    def _create(
        self, record: PodRecord, container: Container, is_init: bool, options: RunOptions
    ) -> RunOptions:
        """Let the container runtime start a container, and return its settings."""
        adjusted = self._runtime.create(record.pod, container, options)
        if is_init and not container.restartable:
            self._runtime.stop(record.pod, container.name)  # it runs to completion at once
        # If the pod was deleted during ``create``, the deletion may have come too early to remove
        # what ``create`` has made.
        if self.is_gone(record):
            self._runtime.remove(record.pod)
            self._check_exists(record)
        return adjusted

    def stopped(self, pod: Pod, name: str) -> None:
        """Report to the container runtime that a container has exited."""
        self._runtime.stop(pod, name)

    def _check_exists(self, record: PodRecord) -> None:
        if self.is_gone(record):
            raise RequestError(
                f"pod {title(record.pod)} was deleted while its container was being started"
            )

    def _allocate_missing(self, pod: Pod, container: Container, is_init: bool) -> None:
        """Allocate the container's resources that have no recorded devices.

        Follows ``GetDeviceRunContainerOptions``, v1.32.
        """
        held = self._manager.holdings(pod.uid).get(container.name, {})
        wanted = [name for name, count in container.limits.items() if count and name not in held]
        # For resources that no plugin ever registered, the admission has published a warning.
        if not any(self._manager.is_known(name) for name in wanted):
            return
        try:
            self._manager.allocate_now(pod, container, is_init)
        except Rejected as rejected:
            raise AllocationError(str(rejected.cause or rejected.message)) from rejected


def _with_cdi(options: RunOptions, names: tuple[str, ...]) -> RunOptions:
    """Append the CDI devices of claims to those of plugins.

    Follows ``GetResources``, pkg/kubelet/cm/container_manager_linux.go, v1.32.
    """
    if not names:
        return options
    together = tuple(dict.fromkeys((*options.cdi_devices, *names)))
    return attrs.evolve(options, cdi_devices=together)

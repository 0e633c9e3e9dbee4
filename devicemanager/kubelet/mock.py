"""``MockKubelet``: the kubelet's device manager with real sockets, in one directory.

Theory of operation. ``MockKubelet`` is the object that a test uses. As on a node, every start
creates a new process: a ``KubeletProcess`` with its own device manager and servers. A restart
keeps the ``MockKubelet`` and its state: directories, pods, structured claims, injected faults,
events and the call log.

Each public member is documented here and delegates to one of these objects:

* ``_life`` (``Lifecycle``): starts and stops the process, one change at a time.
* ``_paths`` (``Directories``): has the paths of sockets and files.
* ``_pods`` (``NodePods``): pods, containers and devices, through the current process.
* ``_waits`` (``Waits``): waits for devices, events and calls.
* ``_direct`` (``DirectCalls``): calls to a plugin without a pod.
* ``_claims`` (``LazyClaims``): structured claims (docs/claims.md), loaded at first use.
* ``_resource_claims`` (``LazyResourceClaims``): ResourceClaims of DRA, loaded at first use.
* ``_fault_actions`` (``FaultActions``): faults that act on the process and its sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from checkpoint.files import Durability
from devicemanager.claims.lazy_claims import LazyClaims
from devicemanager.core.errors import RequestError
from devicemanager.core.podstatus.containers import STOPPED
from devicemanager.events.calls.log import CallLog
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.io.clock import Clock, SystemClock
from devicemanager.kubelet.arguments import check_arguments, embedded_claims, parser
from devicemanager.kubelet.direct import DeviceLists, DirectCalls
from devicemanager.kubelet.directories import Directories, TemporaryRoot
from devicemanager.kubelet.expectations import Expected
from devicemanager.kubelet.lifecycle import Lifecycle
from devicemanager.kubelet.node_pods import NodePods
from devicemanager.kubelet.pods.records import PodStore, pod_uid
from devicemanager.kubelet.process import KubeletProcess
from devicemanager.kubelet.process_faults import FaultActions
from devicemanager.kubelet.resource_claims import LazyResourceClaims
from devicemanager.kubelet.settings import Settings
from devicemanager.kubelet.waits import Waits, WaitTimeout

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from devicemanager.claims.files import ClaimSource
    from devicemanager.claims.manager import ClaimManager
    from devicemanager.core.dra.effects import Operation
    from devicemanager.core.dra.report import (
        ClaimResult,
        ClaimsExplanation,
        DraStatus,
        ResourceClaimInfo,
    )
    from devicemanager.core.endpoints import PluginOptions
    from devicemanager.core.node import NodeStatus
    from devicemanager.core.pods import Pod
    from devicemanager.core.podstatus.conditions import Gates
    from devicemanager.core.podstatus.containers import ContainerStatus
    from devicemanager.core.podstatus.phase import Phase
    from devicemanager.core.podstatus.status import PodStatus
    from devicemanager.core.runoptions import ContainerSettings, RunOptions
    from devicemanager.core.status import ResourceStatus
    from devicemanager.events.calls.call import Call
    from devicemanager.events.calls.matching import CallCriteria, Mark
    from devicemanager.events.stream import Event
    from devicemanager.faults.registry import FaultRegistry
    from devicemanager.kubelet.dra.claim_source import ResourceClaims
    from devicemanager.kubelet.expectations import Entry, Step
    from devicemanager.kubelet.inventory import DeviceStatus, PluginStatus
    from devicemanager.kubelet.manager.manager import DeviceManager
    from devicemanager.kubelet.manager.plugin_handler import HealthUpdates
    from devicemanager.kubelet.pods.admission import Admission
    from devicemanager.kubelet.pods.pod_info import PodInfo
    from devicemanager.kubelet.pods.runtime import ContainerRuntime
    from devicemanager.kubelet.telemetry import Telemetry
    from devicemanager.objects.manifests import Source
    from devicemanager.objects.manifests.resource_claims import ClaimSources

__all__ = ["MockKubelet", "WaitTimeout"]


class MockKubelet:
    """A mock kubelet: device manager, PodResources API and plugin watcher in directory ``root``.

    Use it as a context manager, or call ``start`` and ``stop``. All methods are thread-safe.
    Event callbacks cannot start or stop the kubelet.

    Without ``root``, the constructor creates a temporary directory. It is in TMPDIR, or in ``/tmp``
    if TMPDIR is not set or its path has more than 30 bytes. If ``Settings.durability`` is
    ``process``, ``/dev/shm`` (in memory) replaces ``/tmp``, unless this user cannot write to
    ``/dev/shm``. The directory remains while the kubelet is stopped. It is removed by ``close``, at
    the end of the with block, or when the program exits.

    A method whose name ends in ``_async`` does the same as the method without this suffix, and
    does not block the event loop. Cancelling its task ends only the wait: the operation continues.

    Raises StartError if no temporary directory can be created.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        runtime: ContainerRuntime | None = None,
    ) -> None:
        """``runtime`` starts the containers, for example an ``NriRuntime``. The caller must start
        and close the runtime."""
        check_arguments(root, settings, clock)
        self._runtime = runtime
        self.settings = settings or Settings()
        """Settings of the kubelet; a restart does not change them."""
        self.clock = clock or SystemClock()
        """The kubelet's clock; a test can control time with a ``ManualClock``."""
        self.events = EventStream(self.clock)
        """Events of the kubelet, over all restarts."""
        self.calls = CallLog(self.events, self.settings.calls_kept, self.settings.calls_bytes)
        """Log of the RPCs between the kubelet and its plugins, over all restarts."""
        # Without flushes, files need not be on a disk. Some file systems, such as ext4, start to
        # write a file to the disk when it replaces another one.
        in_memory = self.settings.durability is Durability.PROCESS
        self._temporary = TemporaryRoot(self, in_memory=in_memory) if root is None else None
        self._paths = Directories(
            self._temporary.path if self._temporary is not None else Path(root or "")
        )
        self._store = PodStore()
        self._claims = LazyClaims(
            self.events, self.settings.node_name, self.settings.claims_admin_namespaces
        )
        self._resource_claims = LazyResourceClaims(
            self.settings.kubeconfig, self.settings.node_name, self.events
        )
        self._life: Lifecycle = Lifecycle(self.events, self._new_process, self._started)
        self._pods = NodePods(self._life.serving, self._store, self._claims, self.settings)
        self._waits = Waits(self.events, self.calls, self._life, lambda: self.plugin_socket)
        self._direct = DirectCalls(
            self._life, self.plugin_dir, self.calls, self.settings.max_list_bytes
        )
        self._fault_actions = FaultActions(
            self.clock, self.settings, self._life, self.plugin_dir, self._resume, self._failed
        )
        self._faults = self._fault_actions.registry(self.events)
        self._lock = threading.Lock()  # guards _errors
        self._errors: list[BaseException] = []
        # CPUs and memory that are allocated to pods survive a restart, as in the kubelet's state
        # files: a new process takes them from this one. Changed only by starts, which are
        # serialized.
        self._latest: KubeletProcess | None = None

    # -- life ------------------------------------------------------------------------

    def start(self) -> Self:
        """Start the kubelet. Pods from before a ``stop`` are admitted again.

        Raises StartError, with a text of one line, if the kubelet cannot start, and RequestError if
        it is already running. Raises KubeletPanic if ``Settings.quirks`` enables a bug that makes
        the real kubelet panic.
        """
        # Outside the lifecycle's lock: an admission calls plugins, and a stop must not wait for it.
        process = self._life.start()
        try:
            process.workers.readmit()
        except BaseException:
            # A panic, or an interrupt: ``with`` would not stop a kubelet that did not start.
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop the kubelet. Pods and their containers do not change. Idempotent.

        Raises StopError if files could not be removed. The kubelet has stopped even then, and
        can be started again.
        """
        # Cancelled first, so that no action of a fault starts the kubelet again.
        self._fault_actions.cancel()
        self._life.stop()

    def close(self) -> None:
        """Stop the kubelet. Remove its directory if the constructor created it.

        Raises StopError as ``stop`` does.
        """
        try:
            self.stop()
        finally:
            if self._temporary is not None:
                self._temporary.remove()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except RequestError:
            raise  # it is already running: another caller has started it and will close it
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def restart(self) -> None:
        """Restart the kubelet's process.

        Containers keep running. Plugins see a new ``kubelet.sock`` and must re-register.
        Raises StartError or StopError if the start or the stop fails.
        """
        self._resume(self._life.replace())

    def reboot(self) -> None:
        """Reboot the node: all containers stop, and every pod is admitted again.

        A pod is rejected if its plugin has not re-registered. With ``Settings.wait_for_plugin``,
        the admission of the pod waits for the plugin. Raises StartError or StopError if the start
        or the stop fails.
        """
        self._resume(self._life.replace(self._go_down))

    def _go_down(self) -> None:
        self._store.containers_stop()
        if self._runtime is not None:
            self._runtime.reboot()

    def reset(self) -> None:
        """Delete all pods, injected faults, ResourceClaims and structured claims.

        If the kubelet is stopped, this method also starts it.

        Plugins stay registered. Events and calls stay stored: use ``mark`` to ignore earlier events
        and calls. Raises StartError if the start fails.
        """
        # Faults first, so that none fires during the reset; claims last, when no pod uses any.
        self._faults.clear()
        if not self.is_serving:
            self.start()
        self.terminate(*self.pods())
        self._claims.clear()
        self._resource_claims.clear()

    @property
    def is_serving(self) -> bool:
        """True if the kubelet is running."""
        return self._life.process is not None

    def sources_ready(self) -> None:
        """Declare that all pods of the node are known; devices of unknown pods become free.

        Without this call, a kubelet with a checkpoint keeps the devices of unknown pods until every
        pod in the checkpoint has been admitted again. Raises RequestError if the kubelet is
        stopped.
        """
        self._pods.workers.sources_ready()

    def check(self) -> None:
        """Raise the first error that occurred on a server thread since the last call of ``check``.

        Do nothing if no error occurred.
        """
        # Cleared, so that each error is reported only once.
        with self._lock:
            errors, self._errors = self._errors, []
        if errors:
            raise errors[0]

    def _failed(self, error: BaseException) -> None:
        with self._lock:
            self._errors.append(error)
        self.events.publish(EventKind.SERVER_ERROR, f"on a server thread: {error!r}")

    def _new_process(self) -> KubeletProcess:
        if self._temporary is not None:
            self._temporary.ensure()  # a start after ``close`` needs the directory again
        latest = self._latest
        providers = None if latest is None else latest.manager.providers()
        return KubeletProcess(
            self._paths,
            self.settings,
            self.clock,
            self.events,
            self._store,
            self._failed,
            providers,
            self._claims,
            self._resource_claims,
            self.calls,
            self._fault_actions.equipment(),
            self._runtime,
        )

    def _started(self, process: KubeletProcess) -> None:
        self._latest = process
        # ``ShouldResetExtendedResourceCapacity``, devicemanager/manager.go, v1.32
        if process.is_fresh:
            self._pods.reset_node_status()

    @staticmethod
    def _resume(process: KubeletProcess) -> None:
        # The argument is the process that was started: another thread may have stopped it already.
        # In this order: ``readmit`` calls ``await_sources``, which would undo ``sources_ready``.
        process.workers.readmit()
        process.workers.sources_ready()

    # -- paths -----------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """The kubelet's root directory, which has all its sockets and files."""
        return self._paths.root

    @property
    def plugin_dir(self) -> Path:
        """``<root>/device-plugins``, where plugins create their sockets."""
        return self._paths.plugin_dir

    @property
    def plugin_socket(self) -> Path:
        """``kubelet.sock`` in ``plugin_dir``: the Registration service."""
        return self._paths.plugin_socket

    @property
    def pod_resources_socket(self) -> Path:
        """``<root>/pod-resources/kubelet.sock``: the PodResources service."""
        return self._paths.pod_resources_socket

    @property
    def pods_api_socket(self) -> Path:
        """``<root>/pods-api/pods-api.sock``: the Pods API, which kubelets serve from 1.37 on."""
        return self._paths.pods_api_socket

    @property
    def plugins_registry_dir(self) -> Path:
        """``<root>/plugins_registry``, where the plugin watcher discovers plugins."""
        return self._paths.plugins_registry_dir

    @property
    def checkpoint_path(self) -> Path:
        """``kubelet_internal_checkpoint`` in ``plugin_dir``: the device manager's checkpoint."""
        return self._paths.checkpoint_path

    @property
    def claims_state_path(self) -> Path:
        """``<root>/device_claims_state``: the allocations of structured claims."""
        return self._paths.claims_state_path

    # -- pods ------------------------------------------------------------------------

    def admit(
        self,
        manifest: Source,
        *,
        start: bool = True,
        claims: ClaimSources | None = None,
        reserve: bool = True,
    ) -> Admission:
        """Admit a pod, and start its containers unless ``start`` is false.

        ``manifest`` is a dict, YAML text, the path of a file, or a V1Pod of the package
        ``kubernetes``. Init containers start in order, then app containers, with
        PreStartContainer if the plugin requires it.

        ``claims`` are the pod's allocated ResourceClaims, which DRA drivers prepare. Valid forms
        are a dict, YAML text, a path, an object of the package ``kubernetes``, or a list of these.
        Valid API versions are v1, v1beta2 and v1beta1. ResourceClaims in the text or file of the
        manifest are used, too. If the claims cannot be prepared, the pod is admitted and stays
        Pending, and its containers have the error. The kubelet tries again after a minute of its
        clock, or in ``resync``.

        With ``reserve``, the claims are reserved for the pod. If the pod's spec does not name a
        claim, the claim is assigned to an entry of ``spec.resourceClaims`` that has a template. The
        pod becomes the owner of this claim, and the pod's status gets the name of the claim.
        Without ``reserve``, claims and pod are not changed.

        After a call of ``resource_claims.offer``, the kubelet also does the work of the scheduler
        and of the claim controller. It creates claims from templates, and allocates all claims that
        have no allocation. These claims are released when the pod has ended. The pod also gets a
        claim for its extended resources that DeviceClasses serve. The claim does not include
        resources for which a device plugin has allocatable devices.

        A rejection is a result, not an error: ``admitted`` is false, with the kubelet's reason and
        message. Raises ManifestError for a manifest that the API server would not accept, and
        RequestError for a pod that is already admitted. Raises DoesNotFit if the pod's claims
        cannot be allocated.
        """
        found = claims or embedded_claims(manifest)
        if not found and not self._resource_claims.are_allocated:
            return self._pods.admit(manifest, start=start)
        self._check_dra()
        add = self.resource_claims.adopt if reserve else self.resource_claims.add
        # The claims of a pod that is not admitted would stay reserved for it.
        with contextlib.ExitStack() as not_admitted:
            pod, undo = add(parser()(manifest), found)
            not_admitted.callback(undo)
            if reserve and self._resource_claims.are_allocated:
                allocation = self._resource_claims.allocation(
                    self.settings.node_name, self.allocatable
                )
                pod, undo = allocation.allocate(pod, manifest)
                not_admitted.callback(undo)
            admission = self._pods.admit(pod, start=start)
            if admission.admitted:
                not_admitted.pop_all()
        return admission

    def _check_dra(self) -> None:
        if not self.settings.behaviour.dra_enabled:
            raise RequestError(
                f"kubelet {self.settings.kubelet_version} prepares no ResourceClaims: use 1.34 or "
                "later, or 1.32 or 1.33 with the feature gate DynamicResourceAllocation"
            )
        if self.settings.kubeconfig is not None:
            raise RequestError(
                f"ResourceClaims come from the API server of kubeconfig {self.settings.kubeconfig}"
                ": create the claims there"
            )

    def restore(
        self,
        manifest: Source,
        devices: Mapping[str, Mapping[str, Iterable[str]]] | None = None,
        *,
        statuses: Mapping[str, ContainerStatus] | None = None,
        start_time: float | None = None,
    ) -> Admission:
        """Take over a pod that another kubelet ran on this node before.

        ``devices`` are the pod's devices (container → resource → IDs). By default they come from
        the checkpoint, or from a new admission if the checkpoint does not name the pod.
        ``statuses`` are the pod's container statuses; by default all containers run. ``start_time``
        is the pod's start time in seconds since the epoch; the default is now.

        A pod is rejected if one of its devices is allocated to another pod. Raises the same
        errors as ``admit``.
        """
        return self._pods.restore(manifest, devices, statuses, start_time)

    def start_pod(self, uid: str) -> None:
        """Start, in order, those containers of a pod that were never started.

        Init containers that have failed are started again. A container that cannot be started stays
        waiting; call this method again to retry. If an init container cannot be started, no further
        container is started. Raises RequestError for an unknown UID, and for a pod that was
        rejected, has ended or is being deleted.
        """
        self._pods.workers.start(uid)

    def update_pod(self, manifest: Source, generation: int = 0) -> None:
        """Apply a changed manifest of an admitted pod.

        Changed CPU and memory requests of containers are granted if they fit on the node (in-place
        resize, since 1.33). Otherwise the status of the pod has the condition PodResizePending,
        and the kubelet tries again when another pod frees resources. Containers whose
        ``resizePolicy`` is RestartContainer are restarted. New ephemeral containers are started.
        Other changes are ignored. A pod that has ended, or that only waits until its claims are
        unprepared, does not change. ``generation`` is the ``metadata.generation`` of the manifest.

        Raises RequestError for an unknown UID, and ManifestError for an invalid manifest.
        """
        self._pods.update_pod(manifest, generation)

    def complete_resize(self, uid: str) -> None:
        """Internal: finish a pod's in-place resize. Its containers then have the new resources.

        Containers are restarted if their ``resizePolicy`` requires it. Does nothing if no resize
        is in progress. Raises RequestError for an unknown UID.
        """
        self._pods.workers.complete_resize(uid)

    def check_static(self, pod: Pod) -> None:
        """Internal: raise RequestError for a pod that cannot be a static pod.

        A static pod comes from a manifest file and may not use ResourceClaims.

        Follows ``tryDecodeSinglePod`` (pkg/kubelet/config/common.go, v1.32).
        """
        if self._pods.workers.uses_dra(pod):
            raise RequestError("static pods may not use ResourceClaims")

    def resync(self, uid: str) -> None:
        """Sync a pod now instead of at the kubelet's next periodic sync.

        A Pending pod gets its sandbox and containers if its claims can be prepared. A terminating
        pod is removed if its claims can be unprepared. Raises RequestError for an unknown UID.
        """
        self._pods.workers.resync(uid)

    def recreate_sandbox(self, uid: str) -> None:
        """Stop the pod's containers and start them in a new sandbox, as after a crash of the
        sandbox.

        Claims that are prepared are not prepared again. Raises RequestError for an unknown UID, and
        for a pod that has ended or is being deleted.
        """
        self._pods.workers.recreate_sandbox(uid)

    def stop_pod(
        self,
        uid: str,
        exit_code: int = STOPPED,
        *,
        reason: str = "",
        message: str = "",
        disruption: str = "",
    ) -> Phase:
        """End a pod as the kubelet does, for example in an eviction; return its phase.

        Running containers exit with ``exit_code``, and the pod's devices become free. The pod
        stays known, in phase Succeeded or Failed, until ``terminate``. With a ``reason``, such as
        ``Evicted``, the pod's phase is Failed regardless of the exit codes. ``disruption`` is the
        message of the pod's condition ``DisruptionTarget``. A pod that has ended does not change.
        Raises RequestError for an unknown UID.

        docs/testing-plugins.md compares this with ``finish``, ``delete`` and ``terminate``.
        """
        return self._pods.stop_pod(uid, exit_code, reason, message, disruption)

    def finish(self, uid: str, exit_codes: int | Mapping[str, int] = 0) -> Phase:
        """Let every app container of a pod exit by itself, and return the pod's phase.

        The phase is Succeeded if all exit codes are 0, otherwise Failed. ``exit_codes`` is one
        code for all containers, or codes by container (default 0). The pod's devices become
        free; the pod stays known until ``terminate``.

        Raises RequestError for an unknown UID, for a pod that is not active, and for an invalid
        exit code. Also raises RequestError if the restartPolicy makes the kubelet restart the
        containers.

        docs/testing-plugins.md compares this with ``stop_pod``, ``delete`` and ``terminate``.
        """
        return self._pods.finish(uid, exit_codes)

    def delete(self, uid: str, grace_period: float | None = None) -> None:
        """Delete a pod gracefully: its containers get a grace period in which they can exit.

        Containers do not exit by themselves; a test can end them with ``exit_container``. After the
        grace period, the kubelet kills the containers that still run. When no container runs any
        more, the kubelet removes the pod and frees its devices. From this call on, no container of
        the pod is started.

        ``grace_period`` is in seconds of the kubelet's clock, at least 1. The default is the pod's
        ``terminationGracePeriodSeconds``. A second call can only shorten the grace period.

        Raises RequestError for an unknown UID.

        docs/testing-plugins.md compares this with ``stop_pod``, ``finish`` and ``terminate``.
        """
        self._pods.delete(uid, grace_period)

    def terminate(self, *uids: str) -> None:
        """End and remove pods without a grace period, and free their devices.

        If one of the UIDs is unknown, raises RequestError and terminates no pod.

        docs/testing-plugins.md compares this with ``stop_pod``, ``finish`` and ``delete``.
        """
        self._pods.workers.terminate(uids)

    def pod(self, uid: str) -> PodInfo:
        """Describe a pod that is not deleted: its containers, their states and their devices.

        The result has no devices while the kubelet is stopped. Raises RequestError for an unknown
        UID.
        """
        return self._pods.pod(uid)

    def has_pod(self, uid: str) -> bool:
        """True if a pod with this UID is known and not deleted."""
        return self._store.get(pod_uid(uid)) is not None

    def pods(self) -> dict[str, PodInfo]:
        """Describe all pods that are not deleted, by UID, in the order of their admission."""
        return self._pods.pods()

    @property
    def pod_store(self) -> PodStore:
        """Internal: the state of all pods, for other packages of this library."""
        return self._store

    def pod_status(self, uid: str, gates: Gates | None = None) -> PodStatus:
        """Return the pod's status as the kubelet reports it to the API server.

        ``gates`` are the conditions of the pod's readiness gates: condition type → status, such as
        ``True``. The status is None if the pod does not have the condition. Raises RequestError for
        an unknown UID.
        """
        return self._pods.pod_status(uid, gates)

    # -- containers ------------------------------------------------------------------

    def start_container(self, uid: str, container: str) -> RunOptions:
        """Start a container of an admitted pod, and return the merged settings of all its devices.

        Calls PreStartContainer if the plugin requires it, and allocates devices if the container
        has none. Raises AllocationError, with the kubelet's text, if the container must not
        start, and RequestError for an unknown pod or container or a rejected pod.
        """
        return self._pods.workers.start_container(uid, container)

    def container_options(self, uid: str, container: str) -> RunOptions:
        """Return the merged device settings that a container got at its last start.

        Raises RequestError for an unknown pod or container, and for a container that was never
        started.
        """
        return self._pods.workers.container_options(uid, container)

    def run_in_container(
        self,
        uid: str,
        container: str,
        command: Sequence[str],
        *,
        rootfs: str | os.PathLike[str] = "/",
        backend: str | None = None,
        timeout: float | None = None,
        cdi: str | os.PathLike[str] | None = None,
    ) -> CompletedProcess[str]:
        """Run a command with a container's environment variables, mounts and devices, without root.

        Returns the completed process with its output. In the output, ``stderr`` begins with a line
        for each setting that is not possible without root. The command gets the variables, mounts,
        device nodes and CDI edits of the container. The root file system of the command is the
        directory ``rootfs``, read-only. ``backend`` is ``crun``, ``runc`` or ``namespaces``; the
        default is the first of these that this machine has. ``cdi`` is a directory with CDI files;
        the default is the host's directories. Raises RequestError as ``container_options`` does,
        and for an unknown backend. Raises OciError and CdiError for settings that cannot be applied
        on this host, and ``subprocess.TimeoutExpired`` after ``timeout`` seconds.
        """
        from devicemanager.kubelet.container_runs import run_with_options

        options = self.container_options(uid, container)
        files = None if cdi is None else Path(cdi)
        return run_with_options(options, command, Path(rootfs), backend, timeout, files)

    def restart_container(self, uid: str, container: str) -> RunOptions:
        """Start a container again with the same devices, without calling Allocate again.

        Raises the same errors as ``start_container``.
        """
        return self.start_container(uid, container)

    def exit_container(
        self, uid: str, container: str, exit_code: int = 0, *, reason: str = ""
    ) -> ContainerStatus:
        """Let a running container exit by itself, and return its new status.

        ``reason`` is for example ``OOMKilled``; the default is ``Completed`` for exit code 0,
        otherwise ``Error``.

        If the restartPolicy requires it, the kubelet restarts the container with the same
        devices, calling PreStartContainer if the plugin requires it. The first restart is
        immediate; later restarts wait 10 s, 20 s and so on up to 5 min of the kubelet's clock.
        The backoff is reset when the container has run for more than 10 min. When the last
        container of a pod exits without a restart, the pod's phase is Succeeded or Failed and
        its devices become free.

        Raises RequestError for an unknown pod or container, a container that is not running, and
        an invalid exit code.
        """
        return self._pods.exit_container(uid, container, exit_code, reason)

    def container_statuses(self, uid: str) -> dict[str, ContainerStatus]:
        """Return the status of each container of a pod by name, init containers first.

        A status has the state (waiting, running or terminated), the last termination and the
        number of restarts. Raises RequestError for an unknown UID.
        """
        return self._pods.container_statuses(uid)

    # -- devices ---------------------------------------------------------------------

    def devices(self, uid: str) -> dict[str, dict[str, list[str]]]:
        """Return a pod's allocated devices: container → resource → sorted device IDs.

        Raises RequestError if neither a known pod nor the checkpoint has this UID.
        """
        return self._pods.devices(uid)

    def allocated_resources_status(self, uid: str) -> dict[str, tuple[ResourceStatus, ...]]:
        """Return a mapping from a pod's app containers to their ``allocatedResourcesStatus``.

        The statuses of a container are sorted by resource. Each status lists the allocated devices
        of one resource with ``Healthy``, ``Unhealthy`` or ``Unknown``. Raises RequestError for an
        unknown UID.
        """
        return self._pods.allocated_resources_status(uid)

    def capacity(self) -> dict[str, int]:
        """Return the number of devices of each resource, healthy or not.

        The result omits a resource whose plugin has been disconnected for longer than the grace
        period.
        """
        return dict(self._pods.capacity().capacity)

    def allocatable(self) -> dict[str, int]:
        """Return the number of healthy devices of each resource, in use or not."""
        return dict(self._pods.capacity().allocatable)

    def node_status(self) -> NodeStatus:
        """Return the device counts in the Node object's status: ``capacity`` and ``allocatable``.

        A resource that was removed after its grace period stays in the status with 0 devices.
        """
        return self._pods.node_status()

    def plugins(self) -> tuple[PluginStatus, ...]:
        """Return one ``PluginStatus`` for each known resource, sorted by resource.

        It names the plugin that serves the resource, and counts the devices of the resource.
        """
        return self._pods.plugins()

    def inventory(self) -> tuple[DeviceStatus, ...]:
        """Return every device that is advertised or allocated, sorted by resource and ID.

        A ``DeviceStatus`` has the device's health and the container it is allocated to.
        """
        return self._pods.inventory()

    @property
    def health_updates(self) -> HealthUpdates:
        """Queue of the UIDs of pods whose devices changed health, the earliest change first."""
        return self.manager.health_updates

    @property
    def manager(self) -> DeviceManager:
        """Internal: the device manager of the running process.

        Raises RequestError if the kubelet is stopped, and in a forked child.
        """
        return self._pods.manager

    @property
    def telemetry(self) -> Telemetry:
        """Internal: the data that ``run --http`` serves: health, counters and pods."""
        from devicemanager.kubelet.telemetry import Telemetry

        # Functions instead of values: telemetry outlives processes, and is read while stopped.
        return Telemetry(
            lambda: self.manager,
            self.allocated_resources_status,
            self._store,
            self.settings.behaviour.health_check,
            lambda: self._life.process,
            lambda: self._latest,
        )

    # -- waiting ---------------------------------------------------------------------

    def mark(self) -> Mark:
        """Return a mark of this moment in the history of events and calls.

        Take a mark before an action, and pass it as ``since`` to the methods that wait for the
        consequences.

        These methods also find a call that began before the mark, if it ends after the mark. For
        example, the devices of a plugin can become allocatable before its Register call ends. If
        you take a mark between the two, a wait with this mark finds the Register call. To exclude
        such calls from a wait, name the RPC that you expect.
        """
        return self._waits.mark()

    def wait_for_resource(
        self, resource: str, count: int | None = None, timeout: float = 10.0
    ) -> None:
        """Wait until exactly ``count`` devices of a resource are allocatable (None: at least one).

        With ``count`` 0, also wait until a plugin has registered the resource. Raises
        WaitTimeout after ``timeout`` seconds, with a report of what happened, and RequestError
        for an invalid resource name or count.
        """
        self._waits.resource(resource, count, timeout)

    def wait_for(
        self, condition: Callable[[], bool], timeout: float = 10.0, what: str = "the condition"
    ) -> None:
        """Wait until ``condition()`` is true. Check it after every event, and every 0.25 s.

        ``what`` names the condition in the report. Raises WaitTimeout after ``timeout`` seconds,
        with a report of what happened.
        """
        self._waits.condition(condition, timeout, what)

    def wait_for_event(
        self,
        *kinds: EventKind | str,
        resource: str | None = None,
        pod: str | None = None,
        text: str | re.Pattern[str] | None = None,
        where: Callable[[Event], bool] | None = None,
        since: Mark | int | None = None,
        after: int | None = None,
        timeout: float = 10.0,
    ) -> Event:
        """Wait for the next event of one of these kinds (default: any kind) and return it.

        The event must match all given criteria: ``resource``, ``pod`` (a UID), ``text`` and
        ``where(event)``. The event's message must contain ``text``; if ``text`` is a pattern, the
        pattern must match the message.

        By default, only events after the start of the wait count. ``since`` is an earlier mark (see
        ``mark``) or the number of an event: the wait then includes all later events. ``after`` is
        the number of an event, too; 0 includes all stored events.

        Raises WaitTimeout after ``timeout`` seconds, with a report of what happened, and
        RequestError for an unknown kind.
        """
        expected = Expected.event(
            *kinds, resource=resource, pod=pod, text=text, where=where, within=timeout
        )
        return self._waits.event(expected, since, after)

    def wait_for_call(
        self,
        resource: str | None = None,
        *,
        where: Callable[[Call], bool] | None = None,
        since: Mark | None = None,
        timeout: float = 10.0,
        **criteria: Unpack[CallCriteria],
    ) -> Call:
        """Wait for the next call that matches these criteria, and return it.

        ``CallCriteria`` describes the criteria. By default, only calls that end after the start of
        the wait count. With ``since``, calls that end after this mark count. Raises WaitTimeout
        after ``timeout`` seconds, with a report of what happened.
        """
        expected = Expected.call(resource, where=where, within=timeout, **criteria)
        return self._waits.call(expected, since)

    def expect(self, *steps: Step, since: Mark | None = None) -> list[Entry]:
        """Wait until all steps have happened, in this order, and return their events and calls.

        A step is the name of an event kind (``registered``) or of an RPC (``Allocate``). An
        ``Expected`` is a step with more criteria and a separate timeout. The timeout of a step
        begins when the previous step has been found. Other events and calls can come between two
        steps. By default, everything before the start of the wait is ignored. With ``since``,
        everything before this mark is ignored.

        Raises WaitTimeout for the first step that did not happen in time, with a report of what
        happened, and RequestError for an unknown name.
        """
        return self._waits.sequence(steps, since)

    # -- direct calls ----------------------------------------------------------------
    #
    # All raise RpcError with the status if the plugin responds with an error, or does not respond
    # within ``timeout`` seconds. All raise RequestError if no plugin of the resource is connected.

    def allocate(
        self,
        resource: str,
        ids: Iterable[str] | None = None,
        *,
        containers: Sequence[Iterable[str]] | None = None,
        timeout: float = 10.0,
    ) -> tuple[ContainerSettings, ...]:
        """Call the plugin's Allocate with ``ids`` for one container, or with ``containers``.

        ``containers`` has the IDs of each container: ``[{"gpu-0"}, {"gpu-1"}]``. The IDs need not
        exist. Lists and tuples are sent in their order, other iterables sorted.

        Returns the settings of each container response that the plugin sent. Raises RpcError if the
        call fails, and RequestError for invalid arguments or if no plugin is connected. Raises
        WireError if the field ``typed_devices`` of a container response has a device of a kind
        other than filesystem, netlink and pci.
        """
        return self._direct.allocate(resource, ids, containers, timeout)

    def preferred(
        self,
        resource: str,
        available: Iterable[str],
        must_include: Iterable[str] = (),
        *,
        size: int,
        timeout: float = 10.0,
    ) -> tuple[tuple[str, ...], ...]:
        """Call GetPreferredAllocation for one container, even if the plugin does not offer it.

        Returns the device IDs of each container response that the plugin sent, in the plugin's
        order. Raises RpcError if the call fails, and RequestError if no plugin is connected.
        """
        return self._direct.preferred(resource, available, must_include, size, timeout)

    def pre_start(self, resource: str, ids: Iterable[str], *, timeout: float = 10.0) -> None:
        """Call the plugin's PreStartContainer, even if the plugin does not require it.

        Raises RpcError if the call fails, and RequestError if no plugin is connected.
        """
        self._direct.pre_start(resource, ids, timeout)

    def options(self, resource: str, *, timeout: float = 10.0) -> PluginOptions:
        """Call GetDevicePluginOptions, and return the plugin's options.

        Raises RpcError if the call fails, and RequestError if no plugin is connected.
        """
        return self._direct.options(resource, timeout)

    def watch(self, resource: str, *, timeout: float = 10.0) -> DeviceLists:
        """Open another ListAndWatch stream and return an iterator of the plugin's device lists.

        The iterator waits up to ``timeout`` seconds for the next list. Close the iterator, or use
        it in a with block. Raises RequestError if no plugin is connected.
        """
        return self._direct.watch(resource, timeout)

    # -- Dynamic Resource Allocation ---------------------------------------------------

    @property
    def resource_claims(self) -> ResourceClaims:
        """The ResourceClaims in memory, including those that were passed to ``admit``. Tests can
        change them at any time.

        Raises RequestError if the kubelet version has no DRA, or if the kubelet reads claims from
        an API server.
        """
        self._check_dra()
        return self._resource_claims.in_memory

    def explain_claims(self, uid: str) -> ClaimsExplanation:
        """Explain why a pod is Pending or cannot end: what each of its ResourceClaims waits for.

        Raises RequestError for an unknown UID.
        """
        return self._pods.workers.explain_claims(uid)

    def dra_status(self) -> DraStatus:
        """Return the registered DRA drivers, the node's ResourceClaims, and the known
        ResourceSlices."""
        from devicemanager.core.dra.report import DraStatus

        # ``used``: a report does not load DRA on a kubelet whose pods cannot have ResourceClaims.
        manager = self._life.serving().dra.used()
        return DraStatus() if manager is None else manager.status(self._pods.dra_pods())

    def claim_info(self, namespace: str, name: str) -> ResourceClaimInfo:
        """Describe a ResourceClaim: its pods, its devices and, if it is not prepared, the reason.

        Raises RequestError if neither the kubelet nor the API server knows the claim.
        """
        manager = self._life.serving().dra.used()
        if manager is not None:
            # ``claim_infos`` returns all claims of the node. It reads the named claim even if that
            # needs a request to the API server.
            for each in manager.claim_infos(self._pods.dra_pods(), (namespace, name)):
                if (each.namespace, each.name) == (namespace, name):
                    return each
        raise RequestError(f"unknown ResourceClaim {namespace}/{name}: create it first")

    def prepare_claims(
        self, driver: str, claims: Iterable[str], *, endpoint: str | None = None
    ) -> dict[str, ClaimResult]:
        """Call NodePrepareResources of a driver for claims, without a pod.

        ``claims`` are names as ``NAMESPACE/NAME``. ``endpoint`` is the socket path of one instance
        of the driver; None selects the instance that the kubelet would call.

        Returns the driver's results by claim UID. The kubelet's state does not change. Raises
        RpcError if the call fails, and RequestError for an unknown claim or driver.
        """
        from devicemanager.core.dra.effects import Operation

        return self._call_driver(Operation.PREPARE, driver, claims, endpoint)

    def unprepare_claims(
        self, driver: str, claims: Iterable[str], *, endpoint: str | None = None
    ) -> dict[str, ClaimResult]:
        """Call NodeUnprepareResources of a driver for claims, without a pod.

        Takes the same arguments and raises the same errors as ``prepare_claims``.
        """
        from devicemanager.core.dra.effects import Operation

        return self._call_driver(Operation.UNPREPARE, driver, claims, endpoint)

    def _call_driver(
        self, operation: Operation, driver: str, claims: Iterable[str], endpoint: str | None
    ) -> dict[str, ClaimResult]:
        from devicemanager.kubelet.dra.direct import call_driver

        manager = self._life.serving().dra.used()
        if manager is None:
            raise RequestError(f"DRA driver {driver} is not registered")
        return call_driver(manager, operation, driver, claims, endpoint)

    def resource_claim(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return a ResourceClaim as in the API (v1); None if it does not exist.

        Drivers in a test use this in place of a request to the API server.

        Without ``Settings.kubeconfig``, raises RequestError if the kubelet version has no DRA. With
        it, raises RequestError if the kubelet is stopped.
        """
        # With a kubeconfig, the claims are in the API server and the manager reads them there.
        if self.settings.kubeconfig is None:
            return self.resource_claims.get(namespace, name)
        manager = self._life.serving().dra.used()
        return None if manager is None else manager.fetch(namespace, name)

    @property
    def dra_state_path(self) -> Path:
        """``<root>/dra_manager_state``: the ResourceClaims that pods of this node hold."""
        return self._paths.dra_state_path

    # -- structured claims -------------------------------------------------------------

    @property
    def claims(self) -> ClaimManager:
        """Manager of the structured claims of ``devmgmtproto.k8s.io``: pools, classes and claims.

        A restart keeps these objects. ``<root>/device_claims_state`` stores their allocations.
        """
        return self._claims.manager

    def claim_devices(self, uid: str) -> dict[str, dict[str, tuple[str, ...]]]:
        """Return the devices of a pod's claims: container → claim → devices, as ``pool/device``.

        The claims are the pod's structured claims. For a pod without structured claims, they are
        its ResourceClaims of DRA.

        Raises RequestError for an unknown UID.
        """
        pod = self._store.known(uid).pod
        return {
            str(container.name): self._pods.claim_devices(pod, container.name)
            for container, _ in pod.all_containers()
            if container.claims
        }

    def publish(self, pool: ClaimSource) -> None:
        """Publish pools of devices for structured claims (docs/claims.md), as a driver does.

        ``pool`` is a dict, YAML text, a path or an API object. A pool of the same name is replaced;
        allocated devices stay allocated. Objects of other kinds, such as device classes, are
        created or replaced, too. Raises InvalidObject with a line for each broken rule, and
        ClaimsError if the pool belongs to another driver.
        """
        self._apply(pool)

    def define(self, device_class: ClaimSource) -> None:
        """Define device classes for structured claims (docs/claims.md), as an administrator does.

        Accepts the same forms and raises the same errors as ``publish``.
        """
        self._apply(device_class)

    def claim(self, claim: ClaimSource) -> None:
        """Create structured claims (docs/claims.md), as a user does.

        A pod that names a claim in ``spec.resourceClaims`` gets the claim's devices. Accepts the
        same forms and raises the same errors as ``publish``. Also raises ClaimsError for a change
        of an allocated claim.
        """
        self._apply(claim)

    def _apply(self, source: ClaimSource) -> None:
        # Not at the top: most kubelets have no structured claims.
        from devicemanager.claims.files import read_source

        self.claims.apply(read_source(source))

    # -- fault injection ---------------------------------------------------------------

    @property
    def faults(self) -> FaultRegistry:
        """The injected faults of the kubelet, with the methods ``set``, ``list`` and ``clear``.

        A restart does not clear the faults. docs/faults.md describes all kinds of faults.
        """
        return self._faults

    # -- asyncio -----------------------------------------------------------------------

    # These run on another thread: the same event loop may serve the plugin that the kubelet calls.

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, traceback)

    async def restart_async(self) -> None:
        """Do the same as ``restart``, but do not block the event loop."""
        await asyncio.to_thread(self.restart)

    async def reboot_async(self) -> None:
        """Do the same as ``reboot``, but do not block the event loop."""
        await asyncio.to_thread(self.reboot)

    async def admit_async(
        self,
        manifest: Source,
        *,
        start: bool = True,
        claims: ClaimSources | None = None,
        reserve: bool = True,
    ) -> Admission:
        """Do the same as ``admit``, but do not block the event loop.

        The same loop can therefore serve the plugin that the kubelet calls.
        """
        return await asyncio.to_thread(
            self.admit, manifest, start=start, claims=claims, reserve=reserve
        )

    async def terminate_async(self, *uids: str) -> None:
        """Do the same as ``terminate``, but do not block the event loop."""
        await asyncio.to_thread(self.terminate, *uids)

    async def finish_async(self, uid: str, exit_codes: int | Mapping[str, int] = 0) -> Phase:
        """Do the same as ``finish``, but do not block the event loop."""
        return await asyncio.to_thread(self.finish, uid, exit_codes)

    async def start_container_async(self, uid: str, container: str) -> RunOptions:
        """Do the same as ``start_container``, but do not block the event loop."""
        return await asyncio.to_thread(self.start_container, uid, container)

    async def wait_for_resource_async(
        self, resource: str, count: int | None = None, timeout: float = 10.0
    ) -> None:
        """Do the same as ``wait_for_resource``, but do not block the event loop."""
        await self._waits.resource_async(resource, count, timeout)

    async def wait_for_async(
        self, condition: Callable[[], bool], timeout: float = 10.0, what: str = "the condition"
    ) -> None:
        """Do the same as ``wait_for``, but do not block the event loop.

        The condition is called on another thread.
        """
        await self._waits.condition_async(condition, timeout, what)

    async def wait_for_event_async(
        self,
        *kinds: EventKind | str,
        resource: str | None = None,
        pod: str | None = None,
        text: str | re.Pattern[str] | None = None,
        where: Callable[[Event], bool] | None = None,
        since: Mark | int | None = None,
        timeout: float = 10.0,
    ) -> Event:
        """Do the same as ``wait_for_event``, but do not block the event loop."""
        expected = Expected.event(
            *kinds, resource=resource, pod=pod, text=text, where=where, within=timeout
        )
        return await self._waits.event_async(expected, since)

    async def expect_async(self, *steps: Step, since: Mark | None = None) -> list[Entry]:
        """Do the same as ``expect``, but do not block the event loop."""
        return await self._waits.sequence_async(steps, since)

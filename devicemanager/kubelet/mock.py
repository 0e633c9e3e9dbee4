"""``MockKubelet``: the kubelet's device manager with real sockets, in one directory.

Theory of operation. ``MockKubelet`` is the object that a test holds. It outlives the kubelet's
process: every start creates a ``KubeletProcess`` with a new device manager and new servers, as
on a node. What a node keeps over a restart is owned here: directories, pods, structured
claims, injected faults, events and the call log.

Each public member is documented here and delegates to one part:

* ``_life`` (``Lifecycle``): starts and stops the process, one change at a time.
* ``_paths`` (``Directories``): where sockets and files are.
* ``_pods`` (``NodePods``): pods, containers and devices, through the current process.
* ``_waits`` (``Waits``): waits for devices, events and calls.
* ``_direct`` (``DirectCalls``): calls to a plugin without a pod.
* ``_claims`` (``LazyClaims``): structured claims, loaded at first use.
* ``_fault_actions`` (``FaultActions``): faults that act on the process and its sockets.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from devicemanager.claims.lazy_claims import LazyClaims
from devicemanager.core.errors import RequestError
from devicemanager.core.podstatus.containers import STOPPED
from devicemanager.events.calls.log import CallLog
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.io.clock import Clock, SystemClock
from devicemanager.kubelet.arguments import check_arguments
from devicemanager.kubelet.direct import DeviceLists, DirectCalls
from devicemanager.kubelet.directories import Directories, TemporaryRoot
from devicemanager.kubelet.expectations import Expected
from devicemanager.kubelet.lifecycle import Lifecycle
from devicemanager.kubelet.node_pods import NodePods
from devicemanager.kubelet.pods.records import PodStore, pod_uid
from devicemanager.kubelet.process import KubeletProcess
from devicemanager.kubelet.process_faults import FaultActions
from devicemanager.kubelet.settings import Settings
from devicemanager.kubelet.waits import Waits, WaitTimeout

if TYPE_CHECKING:
    from devicemanager.claims.files import ClaimSource
    from devicemanager.claims.manager import ClaimManager
    from devicemanager.core.endpoints import PluginOptions
    from devicemanager.core.node import NodeStatus
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
    from devicemanager.kubelet.expectations import Entry, Step
    from devicemanager.kubelet.inventory import DeviceStatus, PluginStatus
    from devicemanager.kubelet.manager.manager import DeviceManager
    from devicemanager.kubelet.manager.plugin_handler import HealthUpdates
    from devicemanager.kubelet.pods.admission import Admission
    from devicemanager.kubelet.pods.pod_info import PodInfo
    from devicemanager.kubelet.telemetry import Telemetry
    from devicemanager.objects.manifests import Source

__all__ = ["MockKubelet", "WaitTimeout"]


class MockKubelet:
    """A kubelet's device manager, PodResources API and plugin watcher under ``root``.

    Use it as a context manager, or call ``start`` and ``stop``. All methods are thread-safe;
    event callbacks cannot start or stop the kubelet.

    Without a root it creates a temporary directory with a short path at once, under TMPDIR if
    that is short enough. The directory stays while the kubelet is stopped. It is removed by
    ``close``, at the end of the with block, or when the program exits.

    Methods whose names end in ``_async`` do the same as those without, and do not block the
    event loop. Cancelling a task ends its wait; the operation itself completes.

    Raises StartError if no temporary directory can be created.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        check_arguments(root, settings, clock)
        self.settings = settings or Settings()
        """Settings of every process of this kubelet."""
        self.clock = clock or SystemClock()
        """The kubelet's clock; a test can control time with a ``ManualClock``."""
        self.events = EventStream(self.clock)
        """Everything that happens in the kubelet, over all restarts."""
        self.calls = CallLog(self.events, self.settings.calls_kept, self.settings.calls_bytes)
        """Every RPC between the kubelet and its plugins, over all restarts."""
        self._temporary = TemporaryRoot(self) if root is None else None
        self._paths = Directories(
            self._temporary.path if self._temporary is not None else Path(root or "")
        )
        self._store = PodStore()
        self._claims = LazyClaims(
            self.events, self.settings.node_name, self.settings.claims_admin_namespaces
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
        # CPUs, memory and the like that pods hold survive a restart, as in the kubelet's state
        # files: they are taken from here. Changed only by starts and stops, which are serialized.
        self._latest: KubeletProcess | None = None

    # -- life ------------------------------------------------------------------------

    def start(self) -> Self:
        """Start serving. Pods from before a ``stop`` are admitted again.

        Raises StartError, with one line, if the kubelet cannot start here, RequestError if it is
        already running, and KubeletPanic with a quirk that makes the real kubelet panic.
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
        """Stop serving. Pods and their containers do not change. Idempotent.

        Raises StopError if files could not be removed. The kubelet has stopped even then, and
        can be started again.
        """
        # First, so that no action of a fault starts the kubelet again.
        self._fault_actions.cancel()
        self._life.stop()

    def close(self) -> None:
        """Stop, and remove the temporary directory if there is one. Raises as ``stop`` does."""
        try:
            self.stop()
        finally:
            if self._temporary is not None:
                self._temporary.remove()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except RequestError:
            raise  # it is already running: do not close what another caller has started
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
        Raises StartError and StopError.
        """
        self._resume(self._life.replace())

    def reboot(self) -> None:
        """Reboot the node: no container runs, and every pod is admitted again.

        A pod is rejected if its plugin has not re-registered, unless
        ``Settings.wait_for_plugin`` gives the plugin time (Q6). Raises StartError and StopError.
        """
        self._resume(self._life.replace(self._store.containers_stop))

    def reset(self) -> None:
        """Delete all pods, clear all faults and withdraw all objects of structured claims.

        The kubelet runs afterwards. Plugins stay registered, events and calls stay stored: see
        ``mark``. Raises StartError.
        """
        # Faults first, so that none fires during the rest; claims last, when no pod has any.
        self._faults.clear()
        if not self.is_serving:
            self.start()
        self.terminate(*self.pods())
        self._claims.clear()

    @property
    def is_serving(self) -> bool:
        """True if the kubelet is running."""
        return self._life.process is not None

    def sources_ready(self) -> None:
        """Declare that all pods of the node are known, and free the devices of all others.

        A kubelet that starts with a checkpoint frees no devices until it knows every pod in
        the checkpoint: when all of them have been admitted again, or when this is called.
        Raises RequestError if the kubelet is stopped.
        """
        self._pods.workers.sources_ready()

    def check(self) -> None:
        """Raise the first error that occurred on a server thread since the last call, if any."""
        # Cleared, so that the end of a test reports an error only once.
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
            self._temporary.ensure()  # ``close`` has removed it, and the kubelet starts again
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
            self.calls,
            self._fault_actions.equipment(),
        )

    def _started(self, process: KubeletProcess) -> None:
        self._latest = process
        # ``ShouldResetExtendedResourceCapacity``, devicemanager/manager.go, v1.32
        if process.is_fresh:
            self._pods.reset_node_status()

    @staticmethod
    def _resume(process: KubeletProcess) -> None:
        # Takes the process that was started: another thread may have stopped it already.
        process.workers.readmit()
        process.workers.sources_ready()

    # -- paths -----------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """The kubelet's root directory."""
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
    def plugins_registry_dir(self) -> Path:
        """``<root>/plugins_registry``, where the plugin watcher discovers plugins."""
        return self._paths.plugins_registry_dir

    @property
    def checkpoint_path(self) -> Path:
        """``kubelet_internal_checkpoint`` in ``plugin_dir``."""
        return self._paths.checkpoint_path

    @property
    def claims_state_path(self) -> Path:
        """``<root>/device_claims_state``: the allocations of structured claims."""
        return self._paths.claims_state_path

    # -- pods ------------------------------------------------------------------------

    def admit(self, manifest: Source, *, start: bool = True) -> Admission:
        """Admit a pod: a manifest as dict, YAML text or path, or a ``kubernetes`` V1Pod.

        With ``start`` its containers are started too: init containers in order, then app
        containers, with PreStartContainer where the plugin requires it.

        A rejection is a result, not an error: ``admitted`` is false, with the kubelet's reason
        and message. Raises ManifestError for a manifest that the API server would not accept,
        and RequestError for a pod that is already admitted.
        """
        return self._pods.admit(manifest, start=start)

    def restore(
        self,
        manifest: Source,
        devices: Mapping[str, Mapping[str, Iterable[str]]] | None = None,
        *,
        statuses: Mapping[str, ContainerStatus] | None = None,
        start_time: float | None = None,
    ) -> Admission:
        """Take over a pod that another kubelet ran on this node before.

        ``devices`` are allocated to it (container → resource → IDs), and ``statuses`` are its
        container statuses. By default the devices come from the checkpoint, or from a new
        admission if the checkpoint does not name the pod, and all containers run.

        A pod is rejected if one of its devices is allocated to another pod. Raises as ``admit``
        does.
        """
        return self._pods.restore(manifest, devices, statuses, start_time)

    def start_pod(self, uid: str) -> None:
        """Start every container of an admitted pod that was never started, in order.

        A container that cannot be started waits for a retry; if it is an init container, the
        rest is not started. Raises RequestError for an unknown UID and for a pod that has
        ended or is being deleted.
        """
        self._pods.workers.start(uid)

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

        Running containers exit with ``exit_code``, and the devices are free. The pod stays
        known, Succeeded or Failed, until ``terminate``. With a ``reason``, such as
        ``Evicted``, it is Failed regardless of its exit codes. ``disruption`` is the message
        of the condition ``DisruptionTarget``. Does nothing if the pod has already ended.
        Raises RequestError for an unknown UID.

        docs/testing-plugins.md compares this with ``finish``, ``delete`` and ``terminate``.
        """
        return self._pods.stop_pod(uid, exit_code, reason, message, disruption)

    def finish(self, uid: str, exit_codes: int | Mapping[str, int] = 0) -> Phase:
        """Let every app container of a pod exit by itself, and return the pod's phase.

        The phase is Succeeded if all exit codes are 0, otherwise Failed. ``exit_codes`` is one
        code for all containers, or codes by container (default 0). The devices are free; the
        pod stays known until ``terminate``.

        Raises RequestError for an unknown UID, a pod that is not active, one whose
        restartPolicy makes the kubelet restart its containers, and an invalid exit code.

        docs/testing-plugins.md compares this with ``stop_pod``, ``delete`` and ``terminate``.
        """
        return self._pods.finish(uid, exit_codes)

    def delete(self, uid: str, grace_period: float | None = None) -> None:
        """Delete a pod gracefully: stop its containers and start no container any more.

        The pod keeps its devices until all containers have exited (``exit_container``), or
        until they are killed after the grace period. Then it is removed, as by ``terminate``.
        The grace period is in seconds of the kubelet's clock, at least 1; the default is the
        pod's ``terminationGracePeriodSeconds``. A second call can only shorten it.

        Raises RequestError for an unknown UID.

        docs/testing-plugins.md compares this with ``stop_pod``, ``finish`` and ``terminate``.
        """
        self._pods.delete(uid, grace_period)

    def terminate(self, *uids: str) -> None:
        """End and remove pods at once; their devices are free.

        Raises RequestError, and terminates none, if one of the UIDs is unknown.

        docs/testing-plugins.md compares this with ``stop_pod``, ``finish`` and ``delete``.
        """
        self._pods.workers.terminate(uids)

    def pod(self, uid: str) -> PodInfo:
        """Describe a pod that is not deleted: its containers, their states and their devices.

        While the kubelet is stopped it has no devices. Raises RequestError for an unknown UID.
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
        """Internal: the records of the pods, for nodes in a cluster and views."""
        return self._store

    def pod_status(self, uid: str, gates: Gates | None = None) -> PodStatus:
        """Return the pod's status as the kubelet reports it to the API server.

        ``gates`` are its readiness gates. Raises RequestError for an unknown UID.
        """
        return self._pods.pod_status(uid, gates)

    # -- containers ------------------------------------------------------------------

    def start_container(self, uid: str, container: str) -> RunOptions:
        """Start a container of an admitted pod and return the merged settings of its devices.

        Calls PreStartContainer where the plugin requires it, and allocates devices if none are
        recorded. Raises AllocationError, with the kubelet's text, if the container must not
        start, and RequestError for an unknown pod or container or a rejected pod.
        """
        return self._pods.workers.start_container(uid, container)

    def restart_container(self, uid: str, container: str) -> RunOptions:
        """Start a container again, with the same devices and no second Allocate.

        Raises as ``start_container`` does.
        """
        return self.start_container(uid, container)

    def exit_container(
        self, uid: str, container: str, exit_code: int = 0, *, reason: str = ""
    ) -> ContainerStatus:
        """Let a running container exit by itself, and return its new status.

        ``reason`` is for example ``OOMKilled``; the default is ``Completed`` for exit code 0,
        otherwise ``Error``.

        The restartPolicy decides what follows. The kubelet restarts the container with the
        same devices, and with PreStartContainer where the plugin requires it: at once, then
        after 10 s, 20 s and so on up to 5 min of the kubelet's clock. The backoff is reset
        when the container has run for more than 10 min. If the container is not restarted and
        was the last one, the pod has Succeeded or Failed and its devices are free.

        Raises RequestError for an unknown pod or container, a container that does not run, and
        an invalid exit code.
        """
        return self._pods.exit_container(uid, container, exit_code, reason)

    def container_statuses(self, uid: str) -> dict[str, ContainerStatus]:
        """Return the status of each container by name, init containers first.

        A status has the state (waiting, running or terminated), the last termination and the
        number of restarts. Raises RequestError for an unknown UID.
        """
        return self._pods.container_statuses(uid)

    # -- devices ---------------------------------------------------------------------

    def devices(self, uid: str) -> dict[str, dict[str, list[str]]]:
        """Return a pod's allocated devices: container → resource → sorted device IDs.

        Raises RequestError if neither the pods nor the checkpoint have this UID.
        """
        return self._pods.devices(uid)

    def allocated_resources_status(self, uid: str) -> dict[str, tuple[ResourceStatus, ...]]:
        """Return ``allocatedResourcesStatus`` by container, sorted.

        Each allocated resource lists its devices with ``Healthy``, ``Unhealthy`` or
        ``Unknown``. As in the API, only app containers are included. Raises RequestError for
        an unknown UID.
        """
        return self._pods.allocated_resources_status(uid)

    def capacity(self) -> dict[str, int]:
        """Return the number of devices per resource, healthy or not.

        A resource is removed when its plugin has been disconnected for longer than the grace
        period.
        """
        return dict(self._pods.capacity().capacity)

    def allocatable(self) -> dict[str, int]:
        """Return the number of healthy devices per resource, in use or not."""
        return dict(self._pods.capacity().allocatable)

    def node_status(self) -> NodeStatus:
        """Return capacity and allocatable as in the Node object; removed resources stay at 0."""
        return self._pods.node_status()

    def plugins(self) -> tuple[PluginStatus, ...]:
        """Return the plugin of each known resource, sorted by resource."""
        return self._pods.plugins()

    def inventory(self) -> tuple[DeviceStatus, ...]:
        """Return every device that is advertised or allocated, sorted by resource and ID.

        Each has its health and the container it is allocated to.
        """
        return self._pods.inventory()

    @property
    def health_updates(self) -> HealthUpdates:
        """UIDs of pods whose devices changed health, oldest first."""
        return self.manager.health_updates

    @property
    def manager(self) -> DeviceManager:
        """Internal: the device manager of the running process.

        Raises RequestError if the kubelet is stopped, and in a forked child.
        """
        return self._pods.manager

    @property
    def telemetry(self) -> Telemetry:
        """Internal: what ``run --http`` serves: health, counters, and pods with their statuses."""
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
        """Return the current position among events and calls.

        Take a mark before an action and pass it as ``since`` to the methods that wait for the
        consequences. A call is recorded when it has ended: the Register of a plugin can come
        after a mark that was taken when its devices were already counted. Therefore name the
        RPC you mean.
        """
        return self._waits.mark()

    def wait_for_resource(
        self, resource: str, count: int | None = None, timeout: float = 10.0
    ) -> None:
        """Wait until ``count`` devices of the resource are allocatable (None: any number).

        A resource that no plugin has registered has no count, not even 0. Raises WaitTimeout
        after ``timeout`` seconds, with what did happen, and RequestError at once for an
        invalid resource name or count.
        """
        self._waits.resource(resource, count, timeout)

    def wait_for(
        self, condition: Callable[[], bool], timeout: float = 10.0, what: str = "the condition"
    ) -> None:
        """Wait until ``condition()`` is true; it is checked again after every event.

        Raises WaitTimeout after ``timeout`` seconds, with what did happen.
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

        It must match the given criteria: the resource, the pod (a UID), a message that contains
        ``text`` or matches the pattern, and ``where(event)``.

        By default only events after this call count. With ``since``, events after a ``mark``
        or after the event with that number count. ``after`` is the same for a number: 0
        includes everything since the kubelet was created.

        Raises WaitTimeout after ``timeout`` seconds, with what did happen, and RequestError
        for an unknown kind.
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

        The criteria are those of ``calls``. The call must end after now, or after the mark
        ``since``. Raises WaitTimeout after ``timeout`` seconds, with what did happen.
        """
        expected = Expected.call(resource, where=where, within=timeout, **criteria)
        return self._waits.call(expected, since)

    def expect(self, *steps: Step, since: Mark | None = None) -> list[Entry]:
        """Wait until all steps have happened, in this order, and return them.

        A step is the name of an event kind (``registered``), the name of an RPC (``Allocate``),
        or an ``Expected`` with more criteria and a separate timeout, which begins when the
        previous step was found. Other events and calls can come in between. Only what happens
        after this call counts, or after the mark ``since``.

        Raises WaitTimeout for the first step that did not happen in time, with what did
        happen, and RequestError for an unknown name.
        """
        return self._waits.sequence(steps, since)

    # -- direct calls ----------------------------------------------------------------
    #
    # All raise RpcError with the status if the plugin responds with an error or not within
    # ``timeout`` seconds, and RequestError if no plugin of the resource is connected.

    def allocate(
        self,
        resource: str,
        ids: Iterable[str] | None = None,
        *,
        containers: Sequence[Iterable[str]] | None = None,
        timeout: float = 10.0,
    ) -> tuple[ContainerSettings, ...]:
        """Call Allocate for one container, or for several: ``containers=[{"gpu-0"}, {"gpu-1"}]``.

        The IDs need not exist. Lists and tuples are sent in their order, anything else sorted.

        Returns the settings of each container response, as many as the plugin sent. Raises
        RpcError, RequestError, and WireError for a typed device of an unknown kind.
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

        Returns the IDs of each container response, as many as the plugin sent and in its
        order. Raises RpcError and RequestError.
        """
        return self._direct.preferred(resource, available, must_include, size, timeout)

    def pre_start(self, resource: str, ids: Iterable[str], *, timeout: float = 10.0) -> None:
        """Call PreStartContainer, even if the plugin does not require it.

        Raises RpcError and RequestError.
        """
        self._direct.pre_start(resource, ids, timeout)

    def options(self, resource: str, *, timeout: float = 10.0) -> PluginOptions:
        """Call GetDevicePluginOptions. Raises RpcError and RequestError."""
        return self._direct.options(resource, timeout)

    def watch(self, resource: str, *, timeout: float = 10.0) -> DeviceLists:
        """Open a second ListAndWatch stream and return an iterator of the plugin's lists.

        It waits up to ``timeout`` seconds for each list. Close it, or use it in a with block.
        Raises RequestError if no plugin is connected.
        """
        return self._direct.watch(resource, timeout)

    # -- structured claims -------------------------------------------------------------

    @property
    def claims(self) -> ClaimManager:
        """Pools, classes and claims of ``devmgmtproto.k8s.io``.

        They outlive restarts; allocations are stored in ``<root>/device_claims_state``.
        """
        return self._claims.manager

    def claim_devices(self, uid: str) -> dict[str, dict[str, tuple[str, ...]]]:
        """Return a pod's claimed devices: container → claim → devices, as ``pool/device``.

        Raises RequestError for an unknown UID.
        """
        # Not of the claim manager, which would be created: most pods have no claims.
        pod = self._store.known(uid).pod
        return {
            str(container.name): self._claims.devices(pod, container.name)
            for container, _ in pod.all_containers()
            if container.claims
        }

    def publish(self, pool: ClaimSource) -> None:
        """Publish pools as a driver: dict, YAML text, path or object.

        A pool of the same name is replaced; allocated devices stay allocated. Objects of other
        kinds are applied too. Raises InvalidObject with a line for each broken rule, and
        ClaimsError if the pool belongs to another driver.
        """
        self._apply(pool)

    def define(self, device_class: ClaimSource) -> None:
        """Define device classes as an administrator. Accepts and raises what ``publish`` does."""
        self._apply(device_class)

    def claim(self, claim: ClaimSource) -> None:
        """Create claims as a user. Accepts and raises what ``publish`` does.

        A pod that names a claim in ``spec.resourceClaims`` gets its devices. Raises ClaimsError
        for a change of an allocated claim.
        """
        self._apply(claim)

    def _apply(self, source: ClaimSource) -> None:
        # Not at the top: most kubelets have no structured claims.
        from devicemanager.claims.files import read_source

        self.claims.apply(read_source(source))

    # -- fault injection ---------------------------------------------------------------

    @property
    def faults(self) -> FaultRegistry:
        """Fault injection: ``set``, ``list`` and ``clear``.

        Faults outlive restarts; see docs/faults.md.
        """
        return self._faults

    # -- asyncio -----------------------------------------------------------------------

    # On another thread, because the same loop may serve the plugin that the kubelet calls.

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
        """``restart`` for asyncio."""
        await asyncio.to_thread(self.restart)

    async def reboot_async(self) -> None:
        """``reboot`` for asyncio."""
        await asyncio.to_thread(self.reboot)

    async def admit_async(self, manifest: Source, *, start: bool = True) -> Admission:
        """``admit`` for asyncio; the same event loop can serve the plugin."""
        return await asyncio.to_thread(self.admit, manifest, start=start)

    async def terminate_async(self, *uids: str) -> None:
        """``terminate`` for asyncio."""
        await asyncio.to_thread(self.terminate, *uids)

    async def finish_async(self, uid: str, exit_codes: int | Mapping[str, int] = 0) -> Phase:
        """``finish`` for asyncio."""
        return await asyncio.to_thread(self.finish, uid, exit_codes)

    async def start_container_async(self, uid: str, container: str) -> RunOptions:
        """``start_container`` for asyncio."""
        return await asyncio.to_thread(self.start_container, uid, container)

    async def wait_for_resource_async(
        self, resource: str, count: int | None = None, timeout: float = 10.0
    ) -> None:
        """``wait_for_resource`` for asyncio."""
        await self._waits.resource_async(resource, count, timeout)

    async def wait_for_async(
        self, condition: Callable[[], bool], timeout: float = 10.0, what: str = "the condition"
    ) -> None:
        """``wait_for`` for asyncio. The condition is called on another thread."""
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
        """``wait_for_event`` for asyncio."""
        expected = Expected.event(
            *kinds, resource=resource, pod=pod, text=text, where=where, within=timeout
        )
        return await self._waits.event_async(expected, since)

    async def expect_async(self, *steps: Step, since: Mark | None = None) -> list[Entry]:
        """``expect`` for asyncio."""
        return await self._waits.sequence_async(steps, since)

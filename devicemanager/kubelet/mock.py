"""MockKubelet: everything together in one directory.

One object lives through restarts and reboots; each time the kubelet's side starts anew
there is a new ``KubeletProcess`` with its own manager and servers, as there is a new
process on a node.
"""

from __future__ import annotations

import os
import queue
import random
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import attrs

from devicemanager.calls.log import CallLog
from devicemanager.claims.door import ClaimsDoor
from devicemanager.clock import Clock, SystemClock
from devicemanager.core.errors import RequestError
from devicemanager.core.ids import PodUid
from devicemanager.core.node import NodeStatus
from devicemanager.core.runoptions import RunOptions
from devicemanager.core.status import ResourceStatus
from devicemanager.events import EventKind, EventStream
from devicemanager.faults.registry import FaultRegistry
from devicemanager.kubelet import inventory
from devicemanager.kubelet.arguments import check_arguments, parser
from devicemanager.kubelet.asynchronous import AsyncMethods
from devicemanager.kubelet.claiming import ClaimObjects
from devicemanager.kubelet.direct import DirectCalls
from devicemanager.kubelet.directories import Directories
from devicemanager.kubelet.faultactions import FaultActions
from devicemanager.kubelet.inventory import DeviceStatus, PluginStatus
from devicemanager.kubelet.lifecycle import Lifecycle
from devicemanager.kubelet.paths import NodePaths
from devicemanager.kubelet.podlife import PodLife
from devicemanager.kubelet.process import KubeletProcess
from devicemanager.kubelet.temporary import TemporaryRoot
from devicemanager.kubelet.waiting import Waits, WaitTimeout
from devicemanager.kubelet.waits import KubeletWaits
from devicemanager.manager.manager import Capacity, DeviceManager
from devicemanager.pods.admission import Admission
from devicemanager.pods.records import Phase, PodRecord, PodStore
from devicemanager.settings import Settings

if TYPE_CHECKING:
    from devicemanager.manifests import Source

__all__ = ["MockKubelet", "WaitTimeout"]


class MockKubelet(NodePaths, ClaimObjects, KubeletWaits, AsyncMethods, DirectCalls, PodLife):
    """A kubelet's device manager, PodResources API and plugin watcher under ``root``.

    Use it as a context manager, or call ``start`` and ``stop``. Everything may be called
    from any thread, except that event callbacks cannot start or stop the kubelet.

    Without a root it makes a short temporary directory at once, under TMPDIR if that is
    short enough. The directory stays while the kubelet is stopped; it goes with ``close``,
    at the end of the with block, or with the program.

    Raises StartError if no temporary directory can be made.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        check_arguments(root, settings)
        self.settings = settings or Settings()
        self.clock = clock or SystemClock()
        self.events = EventStream(self.clock)
        self.calls = CallLog(self.events, self.settings.calls_kept, self.settings.calls_bytes)
        self._temporary = TemporaryRoot(self) if root is None else None
        self._directories = Directories(
            self._temporary.path if self._temporary is not None else Path(root or "")
        )
        self._pods = PodStore()
        self._claims = ClaimsDoor(
            self.events, self.settings.node_name, self.settings.claims_admin_namespaces
        )
        self._life = Lifecycle(self.events, self._new_process, self._started)
        self._fault_actions = FaultActions(
            self.clock, self.settings, self._life, self.plugin_dir, self._resume, self._failed
        )
        self._faults = self._fault_actions.registry(self.events)
        self._waits = Waits(self.events, self.calls, self._life, lambda: self.plugin_socket)
        # Guards _errors and _node_status.
        self._lock = threading.Lock()
        self._errors: list[BaseException] = []
        self._node_status = NodeStatus()
        # What pods hold besides devices outlives the kubelet's process, as in its state
        # files. Only a start or a stop touches it, and of these there is one at a time.
        self._latest: KubeletProcess | None = None

    # -- life ------------------------------------------------------------------------

    def start(self) -> Self:
        """Serve. Pods that are known from before a ``stop`` are admitted again.

        Raises StartError with one line if that is not possible here, and RequestError if
        the kubelet runs already.
        """
        self._life.start().workers.readmit()
        return self

    def stop(self) -> None:
        """Stop serving. Pods and their containers stay as they are. Stopping twice does
        nothing.

        Raises StopError for files that could not be removed; the kubelet has stopped all
        the same, and may be started again.
        """
        self._fault_actions.cancel()
        self._life.stop()

    def close(self) -> None:
        """Stop, and remove the directory if the kubelet made it itself. Raises as ``stop``
        does."""
        try:
            self.stop()
        finally:
            if self._temporary is not None:
                self._temporary.remove()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except RequestError:
            raise  # it runs already: whoever started it stops it
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
        """The kubelet's process starts anew; containers keep running, plugins find a new
        ``kubelet.sock`` and have to register again. Raises StartError and StopError."""
        self._resume(self._life.replace())

    def reboot(self) -> None:
        """The node starts anew: no container runs, so every pod is admitted again. With
        its plugin not back it is refused, unless ``Settings.wait_for_plugin`` allows the
        time (Q6). Raises StartError and StopError."""
        self._resume(self._life.replace(self._pods.containers_stop))

    def reset(self) -> None:
        """As before the first pod: every pod is deleted, every fault cleared, every object of
        structured claims withdrawn. The kubelet serves after that, and its plugins stay as
        they are. Events and calls stay as well: see ``mark``. Raises StartError.
        """
        self._faults.clear()
        if not self.is_serving:
            self.start()
        self.terminate(*self.pods())
        self._claims.clear()

    def _resume(self, process: KubeletProcess) -> None:
        # With the workers of this very start: another thread may have stopped it again.
        process.workers.readmit()
        process.workers.sources_ready()

    def _new_process(self) -> KubeletProcess:
        if self._temporary is not None:
            self._temporary.ensure()
        latest = self._latest
        providers = None if latest is None else latest.manager.providers()
        return KubeletProcess(
            self._directories,
            self.settings,
            self.clock,
            self.events,
            self._pods,
            self._failed,
            providers,
            self._claims,
            self.calls,
            self._fault_actions.equipment(),
        )

    def _started(self, process: KubeletProcess) -> None:
        self._latest = process
        if process.is_fresh:
            with self._lock:
                self._node_status.reset()

    @property
    def is_serving(self) -> bool:
        """Whether the kubelet runs."""
        return self._life.process is not None

    def sources_ready(self) -> None:
        """All pods of the node are known now: devices of others are freed.

        A kubelet on a directory with a checkpoint frees nothing until it knows the pods
        the checkpoint names. That is so when each was admitted again, or from this call.
        Raises RequestError if the kubelet is stopped.
        """
        self._life.serving().workers.sources_ready()

    @property
    def manager(self) -> DeviceManager:
        """The device manager of the running kubelet. Raises RequestError if it is stopped,
        or in a forked child."""
        return self._life.serving().manager

    # -- pods ------------------------------------------------------------------------

    def admit(self, manifest: Source, *, start: bool = True) -> Admission:
        """Admit a pod: a manifest as dict, YAML text or path, or a ``kubernetes`` V1Pod.

        With ``start`` its containers are started, too: init containers in order, then app
        containers, with PreStartContainer where the plugin asks for it.

        A refusal is an answer (``admitted`` false, with the kubelet's reason and message).
        Raises ManifestError for a manifest the API server would not take, and
        RequestError for a pod that is admitted already.
        """
        workers = self._life.serving().workers
        return workers.admit(parser()(manifest), start=start)

    def terminate(self, *uids: str) -> None:
        """The pods end and are deleted: their devices are free. Raises RequestError, and
        terminates none, if there is no pod with one of these UIDs."""
        self._life.serving().workers.terminate(uids)

    def finish(self, uid: str, exit_codes: int | Mapping[str, int] = 0) -> Phase:
        """Every app container of the pod ends by itself: the pod has Succeeded if all exit
        codes are 0, else Failed. ``exit_codes`` is one for all or by container (0 where
        none is given). Its devices are free; it stays known until ``terminate``.

        Raises RequestError for an unknown UID, a pod that is not active, and one whose
        restartPolicy makes the kubelet start its containers again.
        """
        workers = self._life.serving().workers
        if isinstance(exit_codes, int):
            record = self._pods.known(uid)
            exit_codes = {container.name: exit_codes for container in record.pod.containers}
        return workers.finish(uid, exit_codes)

    def start_container(self, uid: str, container: str) -> RunOptions:
        """Start a container of an admitted pod: PreStartContainer where the plugin asks for
        it, then the merged settings of all its resources.

        Devices are allocated now if nothing is recorded. Raises AllocationError with the
        kubelet's text if the container must not start, RequestError for an unknown pod or
        container or a pod that was refused.
        """
        return self._life.serving().workers.start_container(uid, container)

    def restart_container(self, uid: str, container: str) -> RunOptions:
        """A container starts again: the same devices, with no second Allocate. Raises as
        ``start_container`` does."""
        return self.start_container(uid, container)

    # -- reading ---------------------------------------------------------------------

    def capacity(self) -> dict[str, int]:
        """Devices per resource, healthy or not; without resources whose plugin has been
        gone for longer than the grace period."""
        return dict(self._counts(self.manager).capacity)

    def allocatable(self) -> dict[str, int]:
        """Healthy devices per resource, in use or not."""
        return dict(self._counts(self.manager).allocatable)

    @staticmethod
    def _counts(manager: DeviceManager) -> Capacity:
        manager.expire()
        return manager.capacity()

    def node_status(self) -> NodeStatus:
        """Capacity and allocatable of device resources as the node's status shows them:
        a resource that was removed stays, at 0."""
        manager = self.manager
        counts, removed = self._counts(manager), manager.removed()
        with self._lock:
            self._node_status.update(counts.capacity, counts.allocatable, removed)
            return self._node_status.copy()

    def allocated_resources_status(self, uid: str) -> dict[str, tuple[ResourceStatus, ...]]:
        """``allocatedResourcesStatus`` by container: each resource a container holds, and
        each device of it with ``Healthy``, ``Unhealthy`` or ``Unknown``. Sorted. As in the
        API only app containers have it. Raises RequestError for an unknown UID."""
        status = self._life.serving().workers.allocated_resources_status(uid)
        if "Q7" in self.settings.quirks:
            return {name: _shuffled(resources) for name, resources in status.items()}
        return {str(name): resources for name, resources in status.items()}

    def devices(self, uid: str) -> dict[str, dict[str, list[str]]]:
        """What a pod holds: container → resource → sorted device ids.

        Raises RequestError if nobody knows the UID: no pod here has it, nor does the
        checkpoint.
        """
        holdings = self.manager.holdings(PodUid(uid))
        if not holdings:
            self._pods.known(uid)
        return {
            container: {name: sorted(holding.ids) for name, holding in held.items()}
            for container, held in holdings.items()
        }

    def plugins(self) -> tuple[PluginStatus, ...]:
        """The plugin of each known resource, sorted by resource."""
        return inventory.plugins(self.manager.state)

    def inventory(self) -> tuple[DeviceStatus, ...]:
        """Every device that a plugin lists or a container holds, with its health and its
        holder; sorted by resource and id."""
        return inventory.devices(self.manager.state)

    def pod(self, uid: str) -> PodRecord:
        """One pod that is known and not deleted. Raises RequestError for an unknown UID."""
        return self._pods.known(uid)

    def pods(self) -> dict[str, PodRecord]:
        """The pods that are known and not deleted, by UID, in the order they came."""
        return {record.pod.uid: record for record in self._pods.records()}

    @property
    def health_updates(self) -> queue.Queue[PodUid]:
        """UIDs of pods whose devices changed health, oldest first."""
        return self.manager.health_updates

    # -- faults on purpose -------------------------------------------------------------

    @property
    def faults(self) -> FaultRegistry:
        """The faults of the kubelet's side: ``set``, ``list``, ``clear``. They outlive
        restarts; see docs/faults.md."""
        return self._faults

    # -- what goes wrong on server threads ---------------------------------------------

    def check(self) -> None:
        """Raise the first error that happened on a server thread, if there was one."""
        with self._lock:
            errors, self._errors = self._errors, []
        if errors:
            raise errors[0]

    def _failed(self, error: BaseException) -> None:
        with self._lock:
            self._errors.append(error)
        self.events.publish(EventKind.SERVER_ERROR, f"on a server thread: {error!r}")


def _shuffled(resources: tuple[ResourceStatus, ...]) -> tuple[ResourceStatus, ...]:
    """Q7: in the order of a Go map, which is random."""
    mixed = [
        attrs.evolve(one, resources=tuple(random.sample(one.resources, len(one.resources))))
        for one in resources
    ]
    return tuple(random.sample(mixed, len(mixed)))

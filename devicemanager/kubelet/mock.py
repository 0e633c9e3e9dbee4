"""MockKubelet: everything together in one directory.

One object lives through restarts and reboots; each time the kubelet's side starts anew
there is a new ``KubeletProcess`` with its own manager and servers, as there is a new
process on a node.
"""

from __future__ import annotations

import contextlib
import os
import queue
import random
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import attrs

from devicemanager.api.names import is_extended_resource_name
from devicemanager.clock import Clock, SystemClock
from devicemanager.core.errors import (
    DeviceManagerError,
    RequestError,
)
from devicemanager.core.ids import PodUid, ResourceName
from devicemanager.core.node import NodeStatus
from devicemanager.core.providers.provider import HintProvider
from devicemanager.core.runoptions import RunOptions
from devicemanager.core.status import ResourceStatus
from devicemanager.events import Event, EventKind, EventStream
from devicemanager.kubelet.directories import Directories
from devicemanager.kubelet.process import KubeletProcess
from devicemanager.manager.manager import Capacity, Manager
from devicemanager.pods.admission import Admission
from devicemanager.pods.records import Phase, PodRecord, PodStore
from devicemanager.settings import Settings

if TYPE_CHECKING:
    from devicemanager.manifests import Source

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
        if isinstance(root, Settings):
            raise TypeError("settings is a keyword: MockKubelet(settings=…)")
        self.settings = settings or Settings()
        self.clock = clock or SystemClock()
        self.events = EventStream(self.clock)
        self._own_root = root is None
        self._cleaning: weakref.finalize[..., MockKubelet] | None = None
        self._directories = Directories(Path(root) if root is not None else Path())
        # Guards the fields below. Never held over an admission or a server's start.
        self._lock = threading.Lock()
        self._pods = PodStore()
        self._process: KubeletProcess | None = None
        self._errors: list[Exception] = []
        # What pods hold besides devices outlives the kubelet's process, as in its state files.
        self._providers: tuple[HintProvider, ...] | None = None
        self._node_status = NodeStatus()

    # -- where things are ------------------------------------------------------------

    @property
    def root(self) -> Path:
        """The kubelet's directory."""
        return self._directories.root

    @property
    def plugin_dir(self) -> Path:
        """``<root>/device-plugins``: plugins put their sockets here."""
        return self._directories.plugin_dir

    @property
    def plugin_socket(self) -> Path:
        """The Registration service, ``kubelet.sock`` in ``plugin_dir``."""
        return self._directories.plugin_socket

    @property
    def pod_resources_socket(self) -> Path:
        """The PodResources service."""
        return self._directories.pod_resources_socket

    @property
    def plugins_registry_dir(self) -> Path:
        """Plugins that wait to be found put their sockets here."""
        return self._directories.plugins_registry_dir

    @property
    def checkpoint_path(self) -> Path:
        """``kubelet_internal_checkpoint`` in ``plugin_dir``."""
        return self._directories.checkpoint_path

    # -- life ------------------------------------------------------------------------

    def start(self) -> Self:
        """Serve. Raises StartError with one line if that is not possible here."""
        with self._lock:
            if self._process is not None:
                raise RequestError("the kubelet runs already: stop it first")
            if self._own_root and self._directories.root == Path():
                self._directories = Directories(Path(tempfile.mkdtemp(prefix="dm-", dir="/tmp")))
                # Also if nobody stops this kubelet before the program ends.
                self._cleaning = weakref.finalize(self, _remove, self._directories.root)
        process = KubeletProcess(
            self._directories,
            self.settings,
            self.clock,
            self.events,
            self._pods,
            self._failed,
            self._providers,
        )
        try:
            process.start()
        except BaseException:
            self._remove_own_root()
            raise
        with self._lock:
            if process.is_fresh:
                self._node_status.reset()
            self._process = process
        self.events.publish(EventKind.STARTED, f"kubelet serves {self.plugin_socket}")
        return self

    def stop(self) -> None:
        """Stop serving. Pods and their containers stay as they are. Stopping twice does
        nothing."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        process.stop()
        self._providers = process.manager.providers()
        self.events.publish(EventKind.STOPPED, "kubelet stopped")
        self._remove_own_root()

    def _remove_own_root(self) -> None:
        if self._own_root and self._cleaning is not None:
            self._cleaning()
            self._directories = Directories(Path())

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
        self._pods.containers_stop()
        self._again()

    def _again(self) -> None:
        own_root, self._own_root = self._own_root, False
        try:
            self.stop()
        finally:
            self._own_root = own_root
        self.start()
        self._running().workers.readmit()
        self.sources_ready()

    def sources_ready(self) -> None:
        """All pods of the node are known now: devices of others are freed.

        A kubelet on a directory with a checkpoint frees nothing until it knows the pods
        the checkpoint names. That is so when each was admitted again, or from this call.
        """
        self._running().workers.sources_ready()

    @property
    def manager(self) -> Manager:
        """The device manager of the running kubelet. Raises RequestError if it is stopped."""
        return self._running().manager

    def _running(self) -> KubeletProcess:
        process = self._process
        if process is None:
            raise RequestError("the kubelet is not running: start it, or use it in a with block")
        return process

    # -- pods ------------------------------------------------------------------------

    def admit(self, manifest: Source, *, start: bool = True) -> Admission:
        """Admit a pod: a manifest as dict, YAML text or path, or a ``kubernetes`` V1Pod.

        With ``start`` its containers are started, too: init containers in order, then app
        containers, with PreStartContainer where the plugin asks for it.

        A refusal is an answer (``admitted`` false, with the kubelet's reason and message).
        Raises ManifestError for a manifest the API server would not take, and
        RequestError for a pod that is admitted already.
        """
        # Not needed before the first pod comes, and a fifth of all that a start imports.
        from devicemanager import manifests

        return self._running().workers.admit(manifests.parse(manifest), start=start)

    def terminate(self, *uids: str) -> None:
        """The pods end and are deleted: their devices are free. Raises RequestError, and
        terminates none, if there is no pod with one of these UIDs."""
        self._running().workers.terminate(uids)

    def finish(self, uid: str, exit_codes: int | Mapping[str, int] = 0) -> Phase:
        """Every app container of the pod ends by itself: the pod has Succeeded if all exit
        codes are 0, else Failed. ``exit_codes`` is one for all or by container (0 where
        none is given). Its devices are free; it stays known until ``terminate``.

        Raises RequestError for an unknown UID, a pod that is not active, and one whose
        restartPolicy makes the kubelet start its containers again.
        """
        workers = self._running().workers
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
        return self._running().workers.start_container(uid, container)

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
    def _counts(manager: Manager) -> Capacity:
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
        status = self._running().workers.allocated_resources_status(uid)
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

    def pods(self) -> dict[str, PodRecord]:
        """The pods that are known and not deleted, by UID, in the order they came."""
        return {record.pod.uid: record for record in self._pods.records()}

    @property
    def health_updates(self) -> queue.Queue[PodUid]:
        """UIDs of pods whose devices changed health, oldest first."""
        return self.manager.health_updates

    # -- waiting ---------------------------------------------------------------------

    def wait_for_resource(
        self, resource: str, count: int | None = None, timeout: float = 10.0
    ) -> None:
        """Wait until ``count`` devices of the resource are allocatable (None: any).

        Raises WaitTimeout after ``timeout`` seconds, with what did happen, and
        RequestError at once for a name that no plugin can register.
        """
        if not is_extended_resource_name(resource):
            raise RequestError(
                f"no plugin can register {resource!r}: a resource is named with its domain, "
                "such as vendor.com/gpu"
            )

        def there() -> bool:
            found = self.allocatable().get(resource, 0)
            return found > 0 if count is None else found == count

        wanted = "any" if count is None else str(count)
        what = f"{wanted} allocatable devices of {resource}"
        if not self.events.wait_for(there, timeout):
            raise self._too_late(timeout, what, self._missing(ResourceName(resource)))

    def _missing(self, resource: ResourceName) -> str:
        """Why devices of a resource are not there, if its plugin never came."""
        process = self._process
        if process is None:
            return "the kubelet is not running; "
        state = process.manager.state
        with state.lock:
            is_known, serving = resource in state.endpoints, state.endpoints.serving(resource)
        if not is_known:
            return f"no plugin has registered it on {self.plugin_socket}; "
        if serving is None or not serving.id:  # no registration, but the checkpoint's word
            return f"its plugin has not registered on {self.plugin_socket} since the restart; "
        return "" if state.endpoints.is_connected(serving.id) else "its plugin has left; "

    def wait_for(
        self, condition: Callable[[], bool], timeout: float = 10.0, what: str = "the condition"
    ) -> None:
        """Wait until ``condition()`` holds; it is looked at again after every event.

        Raises WaitTimeout after ``timeout`` seconds, with what did happen.
        """
        if not self.events.wait_for(condition, timeout):
            raise self._too_late(timeout, what)

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

    def _too_late(self, timeout: float, what: str, why: str = "") -> WaitTimeout:
        return WaitTimeout(f"waited {timeout:g} s for {what}; {why}{self._story()}")

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


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)


def _shuffled(resources: tuple[ResourceStatus, ...]) -> tuple[ResourceStatus, ...]:
    """Q7: in the order of a Go map, which is random."""
    mixed = [
        attrs.evolve(one, resources=tuple(random.sample(one.resources, len(one.resources))))
        for one in resources
    ]
    return tuple(random.sample(mixed, len(mixed)))

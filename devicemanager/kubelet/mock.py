"""MockKubelet: everything together in one directory.

One object lives through restarts and reboots; each time the kubelet's side starts anew
there is a new ``KubeletProcess`` with its own manager and servers, as there is a new
process on a node.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from devicemanager.claims.lazy_claims import LazyClaims
from devicemanager.core.errors import RequestError
from devicemanager.core.node import NodeStatus
from devicemanager.events.calls.log import CallLog
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.faults.registry import FaultRegistry
from devicemanager.io.clock import Clock, SystemClock
from devicemanager.kubelet.arguments import check_arguments
from devicemanager.kubelet.asynchronous import AsyncMethods
from devicemanager.kubelet.claims import ClaimObjects
from devicemanager.kubelet.direct import DirectCalls
from devicemanager.kubelet.directories import Directories
from devicemanager.kubelet.faultactions import FaultActions
from devicemanager.kubelet.lifecycle import Lifecycle
from devicemanager.kubelet.nodepods import NodePods
from devicemanager.kubelet.paths import NodePaths
from devicemanager.kubelet.pods.records import PodStore
from devicemanager.kubelet.process import KubeletProcess
from devicemanager.kubelet.settings import Settings
from devicemanager.kubelet.temporary import TemporaryRoot
from devicemanager.kubelet.waiting import Waits, WaitTimeout
from devicemanager.kubelet.waits import KubeletWaits

if TYPE_CHECKING:
    from devicemanager.kubelet.telemetry import Telemetry

__all__ = ["MockKubelet", "WaitTimeout"]


class MockKubelet(NodePaths, ClaimObjects, KubeletWaits, AsyncMethods, DirectCalls, NodePods):
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
        check_arguments(root, settings, clock)
        self.settings = settings or Settings()
        self.clock = clock or SystemClock()
        self.events = EventStream(self.clock)
        self.calls = CallLog(self.events, self.settings.calls_kept, self.settings.calls_bytes)
        self._temporary = TemporaryRoot(self) if root is None else None
        self._directories = Directories(
            self._temporary.path if self._temporary is not None else Path(root or "")
        )
        self._pods = PodStore()
        self._claims = LazyClaims(
            self.events, self.settings.node_name, self.settings.claims_admin_namespaces
        )
        self._life: Lifecycle = Lifecycle(self.events, self._new_process, self._started)
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
        its plugin not back it is rejected, unless ``Settings.wait_for_plugin`` allows the
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
    def telemetry(self) -> Telemetry:
        """What ``run --http`` tells: health, counters, pods with their statuses."""
        from devicemanager.kubelet.telemetry import Telemetry

        return Telemetry(
            lambda: self.manager,
            self.allocated_resources_status,
            self._pods,
            self.settings.behaviour.health_check,
            lambda: self._life.process,
            lambda: self._latest,
        )

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

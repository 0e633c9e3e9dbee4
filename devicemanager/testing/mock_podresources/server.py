"""Mock PodResources server, which serves a script's content and applies its steps and faults.

Steps run on the clock's thread. A lock ensures that only one step runs at a time. ``stop`` does not
hold this lock while it waits for the step in progress.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from devicemanager.core.errors import RequestError
from devicemanager.core.printable import counted
from devicemanager.faults import Fault, FaultRegistry
from devicemanager.io.clock import Cancel, Clock, SystemClock
from devicemanager.io.temporary import ADVICE, NoDirectory, short_directory
from devicemanager.kubelet.pod_resources import FaultyResponses, prepare
from devicemanager.testing.mock_podresources.script import Script, Step, with_pods
from podresources import MemorySource, PodResourcesError, PodResourcesServer
from podresources.profile import ALL, Profile
from podresources.values import Allocatable, Pod

if TYPE_CHECKING:
    from devicemanager.faults.injection_point import FaultContext

__all__ = ["MockPodResources"]

_log = logging.getLogger(__name__)

_WORKERS = 32
"""Number of server threads; each delayed response occupies a thread."""


class MockPodResources:
    """Mock PodResources server on ``socket_path``. ``script`` describes its content and steps.

    Without ``socket_path``, the socket is in a new directory, which ``stop`` removes. ``clock``
    determines when steps are due and how long responses are delayed; a test advances a
    ``ManualClock``. ``report`` is called with a line of text at the start and for each step.

    As a context manager, it starts the server and stops it at the end of the block. Thread-safe.
    ``start`` raises PodResourcesError if the server cannot serve on the path. The constructor
    raises this error if it cannot create a directory for the socket.
    """

    def __init__(
        self,
        script: Script | None = None,
        socket_path: str | os.PathLike[str] | None = None,
        *,
        clock: Clock | None = None,
        report: Callable[[str], object] = _log.info,
    ) -> None:
        self.script = script or Script()
        self._clock = clock or SystemClock()
        self._report = report
        self._temporary = None
        if socket_path is None:
            try:
                self._temporary = short_directory()
            except NoDirectory as error:
                raise PodResourcesError(f"{error}: set a socket path, or {ADVICE}") from error
            socket_path = self._temporary / "kubelet.sock"
        self.socket_path = Path(socket_path).absolute()
        self.source = MemorySource(self.script.pods, self.script.allocatable)
        profile = _profile(self.script.kubelet_version)
        # Use the same registry of faults as the kubelet, with other actions.
        actions = _Actions(self.source, profile)
        self.faults = FaultRegistry(self._clock, None, actions, self.script.seed)
        """Registry of the current faults. Its methods ``set`` and ``clear`` change the faults."""
        self._server = PodResourcesServer(
            self.source,
            self.socket_path,
            qps=self.script.qps,
            burst=self.script.burst,
            clock=self._clock.monotonic,
            profile=profile,
            max_workers=_WORKERS,
            answer=FaultyResponses(self.faults),
        )
        # Guards all fields below, and serializes steps. Reentrant, because a step can run during
        # `start`.
        self._lock = threading.RLock()
        self._cancel: Cancel | None = None
        self._is_started = False
        self._due = 0.0
        self._steps = 0

    def start(self) -> Self:
        """Start to serve the script, and apply each step when it is due. Return this server."""
        with self._lock:
            # Set faults before the server starts, so that they apply to the first call.
            for fault in self.script.faults:
                self.faults.set(fault)
            self._server.start()
            self._is_started = True
            # Due times are computed from the start time, so that delays do not accumulate.
            self._due = self._clock.monotonic()
            self._report(f"pod resources socket: {self.socket_path}")
            pods = counted(len(self.script.pods), "pod")
            self._report(f"ready: {pods}, {counted(len(self.script.steps), 'step')}")
            self._schedule()
        return self

    def stop(self) -> None:
        """Stop serving, and apply no further step. Idempotent."""
        with self._lock:
            cancel, self._cancel = self._cancel, None
            self._is_started = False
        # Call without the lock: `cancel` waits for a step in progress, which needs the lock.
        if cancel is not None:
            cancel()
        # Release delayed calls, for which the server would otherwise wait.
        self.faults.stopping()
        self._server.stop()
        if self._temporary is not None:
            # After the server has stopped, because its socket is in this directory.
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    # -- changes -----------------------------------------------------------------------

    def replace(
        self, *, pods: Iterable[Pod] | None = None, allocatable: Allocatable | None = None
    ) -> None:
        """Replace all pods, the allocatable resources, or both."""
        self.apply(Step(pods=None if pods is None else tuple(pods), allocatable=allocatable))

    def set_pods(self, *pods: Pod) -> None:
        """Add pods; they replace all pods of the same namespace and name."""
        self.apply(Step(set_pods=pods))

    def delete_pods(self, *names: str) -> None:
        """Remove pods by ``namespace/name``, or by name in the namespace ``default``."""
        split = (name.rpartition("/") for name in names)
        deleted = tuple((namespace or "default", name) for namespace, _, name in split)
        self.apply(Step(delete_pods=deleted))

    def pause_serving(self) -> None:
        """Remove the socket, as if the kubelet stopped, until ``resume_serving``."""
        self.apply(Step(serving=False))

    def resume_serving(self) -> None:
        """Serve again on the same path after ``pause_serving``."""
        self.apply(Step(serving=True))

    def apply(self, step: Step) -> None:
        """Apply a step immediately. The field ``after`` of the step is ignored."""
        with self._lock:
            pods = self.source.pods() if step.pods is None else step.pods
            if step.set_pods or step.delete_pods:
                pods = with_pods(pods, step.set_pods, step.delete_pods)
            # Replace both in one change, so that no client sees a partial step.
            self.source.replace(pods=pods, allocatable=step.allocatable)
            # Clear faults before setting others, so that a step can replace all faults.
            if step.clear_faults:
                self.faults.clear()
            for fault in step.faults:
                self.faults.set(fault)
            if step.serving is not None:
                self._serve(step.serving)

    def _serve(self, serving: bool) -> None:
        if serving and not self._is_started:
            self._server.start()
            self._is_started = True
        elif not serving:
            self._server.stop()
            self._is_started = False

    # -- reading -----------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Number of steps of the script that were applied so far, including repetitions."""
        return self._steps

    def counters(self) -> Mapping[tuple[str, str], int]:
        """Return the counts of calls and failed calls.

        The keys are pairs: the name of the kubelet's metric, and the API version.
        """
        return self._server.counters()

    # -- the script's steps ------------------------------------------------------------

    def _schedule(self) -> None:
        steps = self.script.steps
        if not steps or (self._steps >= len(steps) and not self.script.repeat):
            return
        self._due += steps[self._steps % len(steps)].after
        self._cancel = self._clock.call_at(self._due, self._next)

    def _next(self) -> None:
        """Apply the next step of the script. The clock's thread calls this method."""
        with self._lock:
            # The server was stopped while this callback waited for the lock.
            if self._cancel is None:
                return
            if self._clock.monotonic() < self._due:  # a clock can call early
                self._cancel = self._clock.call_at(self._due, self._next)
                return
            step = self.script.steps[self._steps % len(self.script.steps)]
            self._steps += 1
            self.apply(step)
            self._report(f"step {self._steps}: {counted(len(self.source.pods()), 'pod')}")
            self._schedule()


class _Actions:
    """Actions for the fault registry. Faults that act on a kubelet are rejected."""

    def __init__(self, source: MemorySource, profile: Profile) -> None:
        self._source = source
        self._profile = profile

    def prepare(self, fault: Fault) -> object:
        if fault.kind.is_action:
            raise _no_kubelet(fault)
        return prepare(fault, self._source, self._profile)

    def execute(self, fault: Fault, context: FaultContext) -> None:
        raise _no_kubelet(fault)

    def start(self, fault: Fault, context: FaultContext) -> None:
        """Never called, because ``prepare`` rejects all actions."""


def _no_kubelet(fault: Fault) -> RequestError:
    return RequestError(
        f"fault {fault.kind.name} needs a kubelet: a mock PodResources server supports only faults"
        " of pod-resources"
    )


def _profile(version: str | None) -> Profile:
    if version is None:
        return ALL
    # Imported here, because a script without a version does not need the kubelet's settings.
    from devicemanager.kubelet.pod_resources import api_profile
    from devicemanager.kubelet.settings import Settings

    return api_profile(Settings(kubelet_version=version))

"""Actors of the stress test, one per thread, and the node that all threads share.

Only the actor that admits a pod terminates it. So every result about its pods must agree with what
the kubelet has confirmed to this actor. Calls can fail while the plugin or the kubelet restarts. A
failed call is a problem only if no restart overlapped it. The kubelet must undo every failed call,
which the check after the lap verifies.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

import attrs

from devicemanager.core.errors import AllocationError, RequestError
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod, RestartPolicy
from podresources.client import PodResourcesClient
from podresources.errors import PodResourcesError
from tools.harness.model import Broken, Devices, devices
from tools.harness.node import Node, listed
from tools.harness.plugin import RESOURCE

MAX_PODS: Final = 12
"""Maximum number of pods that one actor has at a time."""
MAX_DEVICES: Final = 4
"""Maximum number of devices that one pod requests."""

_CONTAINER: Final = "main"
_UNAVAILABLE: Final = "requested number of devices unavailable"
_PAUSE: Final = 0.01
_BETWEEN_RESTARTS: Final = 0.25
"""Seconds between two restarts. Without this pause, every call would overlap a restart."""


@attrs.define
class Restarts:
    """Counter of restarts of the plugin or the kubelet. It counts the beginning and the end of each
    restart."""

    count: int = 0

    @property
    def in_progress(self) -> bool:
        """True if a restart is in progress."""
        return self.count % 2 == 1

    @contextmanager
    def one(self) -> Iterator[None]:
        self.count += 1
        try:
            yield
        finally:
            self.count += 1


class StressNode(Node):
    """Kubelet and plugin that any thread can restart."""

    def __init__(self, number_devices: int) -> None:
        super().__init__(number_devices)
        self.of_kubelet, self.of_plugin = Restarts(), Restarts()
        # Held during a restart: otherwise the plugin could try to register while the kubelet is
        # stopped.
        self._restart = threading.Lock()
        self._next = 0.0

    def restart_plugin(self) -> bool:
        """Restart the plugin and wait for its devices. If the last restart is too recent, do
        nothing and return False."""
        with self._restarting() as may:
            if may:
                with self.of_plugin.one():
                    self.start_plugin()
        return may

    def restart_kubelet(self) -> bool:
        """Restart the kubelet, then the plugin. If the last restart is too recent, do nothing and
        return False."""
        with self._restarting() as may:
            if may:
                # Count it as a restart of the plugin, too: its devices are not registered
                # meanwhile.
                with self.of_plugin.one(), self.of_kubelet.one():
                    self.kubelet.restart()
                    self.start_plugin()
        return may

    @contextmanager
    def _restarting(self) -> Iterator[bool]:
        if not self._restart.acquire(blocking=False):
            yield False
            return
        try:
            may = monotonic() >= self._next
            yield may
            if may:
                self._next = monotonic() + _BETWEEN_RESTARTS
        finally:
            self._restart.release()


class Actor:
    """Thread of the stress test: it does random actions and checks their results."""

    def __init__(self, node: StressNode, numbers: Iterator[int], seed: float) -> None:
        """All actors share ``numbers``, so that the names of pods are unique."""
        self.allocated: dict[str, Devices] = {}
        """Devices of the actor's pods by UID. The UID is also the name of the pod."""
        self._node = node
        self._numbers = numbers
        self._choice = random.Random(seed)
        self._done = Counter[str]()
        self._given_up = threading.Event()
        actions: dict[Callable[[], object], int] = {
            self._admit: 100,
            self._terminate: 50,
            self._finish: 25,
            self._restart_container: 25,
            self._read_devices: 25,
            self._read_counts: 20,
            self._list: 20,
            self._restart_plugin: 2,
            self._restart_kubelet: 1,
        }
        self._actions, self._weights = list(actions), list(actions.values())

    def work(self, end: float) -> None:
        """Do actions until the time ``end``. Raises Broken for a result that contradicts an earlier
        one."""
        with PodResourcesClient(self._node.kubelet.pod_resources_socket) as self._client:
            while monotonic() < end and not self._given_up.is_set():
                (action,) = self._choice.choices(self._actions, self._weights)
                with self._ignoring_restarts():
                    action()

    def give_up(self) -> None:
        """Stop ``work`` after the current action. Thread-safe."""
        self._given_up.set()

    def take_counts(self) -> Counter[str]:
        """Return the counts of the actor's actions and reset them."""
        done, self._done = self._done, Counter[str]()
        return done

    def end_all(self) -> None:
        """Terminate all pods of the actor."""
        for uid in list(self.allocated):
            self._end(uid)

    # -- pods ------------------------------------------------------------------------

    def _admit(self) -> None:
        if len(self.allocated) == MAX_PODS:
            return
        # Read before the call: a restart during the call changes it.
        uid, count = f"pod-{next(self._numbers)}", self._choice.randint(1, MAX_DEVICES)
        plugin = self._node.of_plugin.count
        try:
            admission = self._node.kubelet.admit(_pod(uid, count))
        except BaseException:
            # Terminate the pod: the call may have failed after the pod was admitted.
            self._end(uid)
            raise
        outcome = admission.containers.get(_CONTAINER)
        if outcome is not None and not outcome.error:
            self.allocated[uid] = devices(outcome.devices)
            self._done["admitted"] += 1
            if len(self.allocated[uid]) != count:
                raise Broken(f"pod {uid} has devices {self.allocated[uid]}, expected {count}")
            return
        self._end(uid)
        if outcome is not None:
            raise AllocationError(outcome.error)
        self._done["rejected"] += 1
        if _UNAVAILABLE not in admission.message.lower() and self._plugin_was_registered(plugin):
            raise Broken(f"pod {uid} was rejected although devices were free: {admission.message}")

    def _terminate(self) -> None:
        if self.allocated:
            self._end(self._any_pod())
            self._done["terminated"] += 1

    def _finish(self) -> None:
        if self.allocated:
            uid = self._any_pod()
            self._node.kubelet.finish(uid)
            self._end(uid)
            self._done["finished"] += 1

    def _restart_container(self) -> None:
        if self.allocated:
            self._node.kubelet.restart_container(self._any_pod(), _CONTAINER)
            self._done["containers restarted"] += 1

    def _end(self, uid: str) -> None:
        """Terminate a pod until the kubelet no longer has it. The pod need not exist."""
        self.allocated.pop(uid, None)
        kubelet = self._node.kubelet
        # A restarted kubelet has the earlier pods again, so retry a termination that a restart
        # interrupted.
        while uid in kubelet.pods():
            try:
                kubelet.terminate(uid)
            except RequestError:
                if not self._node.of_kubelet.in_progress:
                    raise
                self._given_up.wait(_PAUSE)

    def _any_pod(self) -> str:
        return self._choice.choice(list(self.allocated))

    # -- reading ---------------------------------------------------------------------

    def _read_devices(self) -> None:
        for uid in self.allocated:
            found = self._node.kubelet.devices(uid).get(_CONTAINER, {})
            self._compare("the kubelet", uid, devices(found))
        self._done["devices read"] += 1

    def _read_counts(self) -> None:
        kubelet, plugin = self._node.kubelet, self._node.of_plugin.count
        status = kubelet.node_status()
        counts = {
            "capacity": kubelet.capacity().get(RESOURCE),
            "allocatable": kubelet.allocatable().get(RESOURCE),
            "the status": status.capacity.get(RESOURCE),
        }
        self._done["counts read"] += 1
        # During a restart, the numbers may be the old or the new ones, or 0.
        if self._plugin_was_registered(plugin):
            expected = self._node.number_devices
            wrong = {what: count for what, count in counts.items() if count != expected}
            if wrong:
                raise Broken(f"expected {expected} devices, found {wrong}")

    def _list(self) -> None:
        pods = {pod.name: listed(pod) for pod in self._client.list()}
        for uid in self.allocated:
            self._compare("PodResources", uid, pods.get(uid, frozenset()))
        self._done["listed"] += 1

    def _compare(self, source: str, uid: str, found: Devices) -> None:
        if found != self.allocated[uid]:
            expected = sorted(self.allocated[uid])
            raise Broken(f"{source} shows {sorted(found)} for pod {uid}, expected {expected}")

    def _plugin_was_registered(self, since: int) -> bool:
        """True if no restart of the plugin was in progress at the count ``since``, and none has
        begun afterwards."""
        return since % 2 == 0 and since == self._node.of_plugin.count

    # -- restarts --------------------------------------------------------------------

    def _restart_plugin(self) -> None:
        self._done["plugin restarts"] += self._node.restart_plugin()

    def _restart_kubelet(self) -> None:
        self._done["kubelet restarts"] += self._node.restart_kubelet()

    @contextmanager
    def _ignoring_restarts(self) -> Iterator[None]:
        kubelet, plugin = self._node.of_kubelet, self._node.of_plugin
        before = kubelet.count, plugin.count
        in_progress = kubelet.in_progress or plugin.in_progress
        try:
            yield
        except (RequestError, AllocationError, PodResourcesError):
            if not in_progress and before == (kubelet.count, plugin.count):
                raise
            self._done["interrupted"] += 1
            self._given_up.wait(_PAUSE)


def _pod(uid: str, count: int) -> Pod:
    limits = {ResourceName(RESOURCE): count}
    container = Container(ContainerName(_CONTAINER), limits, requests=limits)
    return Pod(PodUid(uid), uid, "stress", (container,), restart_policy=RestartPolicy.NEVER)

"""One thread of the stress: what it does, and what it holds the kubelet to."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from devicemanager.core.errors import AllocationError, InternalError, RequestError
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod, RestartPolicy
from podresources.client import PodResourcesClient
from podresources.errors import PodResourcesError
from tools.bench.clock import now
from tools.bench.plugin import RESOURCE
from tools.stress.node import Node

Devices = frozenset[str]

_CONTAINER: Final = "main"
_FULL: Final = "requested number of devices unavailable"
_PAUSE: Final = 0.01


class Actor:
    """Chooses at random what to do next. Its pods are its own: nobody else ends them, so
    what it was told of them has to stay true."""

    def __init__(
        self, node: Node, numbers: Iterator[int], choice: random.Random, pods: int, most: int
    ) -> None:
        """At most ``pods`` pods at a time, each with at most ``most`` devices."""
        self.held: dict[str, Devices] = {}
        """Its pods by UID, which is their name, too, and the devices of each."""
        self._node = node
        self._numbers = numbers
        self._choice = choice
        self._pods = pods
        self._most = most
        self._done = Counter[str]()
        self._given_up = threading.Event()
        works: dict[Callable[[], object], int] = {
            self._admit: 100,
            self._terminate: 50,
            self._finish: 25,
            self._restart_container: 25,
            self._look: 25,
            self._count: 20,
            self._list: 20,
            self._restart_plugin: 2,
            self._restart_kubelet: 1,
        }
        self._works, self._weights = list(works), list(works.values())

    def work(self, end: float) -> None:
        """Do something again and again until ``end``. Raises InternalError for what is not as
        it was told."""
        with PodResourcesClient(self._node.kubelet.pod_resources_socket) as self._client:
            while now() < end and not self._given_up.is_set():
                (work,) = self._choice.choices(self._works, self._weights)
                with self._undisturbed():
                    work()

    def give_up(self) -> None:
        """End soon; may be called from any thread."""
        self._given_up.set()

    def told(self) -> Counter[str]:
        """What it did since it was last asked."""
        done, self._done = self._done, Counter[str]()
        return done

    def end_all(self) -> None:
        """Terminate all pods of its own."""
        for uid in list(self.held):
            self._end(uid)

    # -- pods ------------------------------------------------------------------------

    def _admit(self) -> None:
        if len(self.held) == self._pods:
            return
        uid, count = f"pod-{next(self._numbers)}", self._choice.randint(1, self._most)
        plugin = self._node.of_plugin.count
        try:
            admission = self._node.kubelet.admit(_pod(uid, count))
        except BaseException:
            self._end(uid)
            raise
        outcome = admission.containers.get(_CONTAINER)
        if outcome is not None and not outcome.error:
            self.held[uid] = _all(outcome.devices)
            self._done["admitted"] += 1
            if len(self.held[uid]) != count:
                raise InternalError(f"{uid} has {self.held[uid]}, not {count} devices")
            return
        self._end(uid)
        if outcome is not None:
            raise AllocationError(outcome.error)
        self._done["rejected"] += 1
        if _FULL not in admission.message.lower() and self._plugin_was_there(plugin):
            raise InternalError(f"{uid} was rejected: {admission.message}")

    def _terminate(self) -> None:
        if self.held:
            self._end(self._one())
            self._done["terminated"] += 1

    def _finish(self) -> None:
        if self.held:
            uid = self._one()
            self._node.kubelet.finish(uid)
            self._end(uid)
            self._done["finished"] += 1

    def _restart_container(self) -> None:
        if self.held:
            self._node.kubelet.restart_container(self._one(), _CONTAINER)
            self._done["containers restarted"] += 1

    def _end(self, uid: str) -> None:
        """The pod is gone when this returns, whether or not it was there."""
        self.held.pop(uid, None)
        kubelet = self._node.kubelet
        while uid in kubelet.pods():
            try:
                kubelet.terminate(uid)
            except RequestError:
                if not self._node.of_kubelet.is_on:
                    raise
                self._given_up.wait(_PAUSE)

    def _one(self) -> str:
        return self._choice.choice(list(self.held))

    # -- reading ---------------------------------------------------------------------

    def _look(self) -> None:
        for uid in self.held:
            self._compare(
                "the kubelet", uid, _all(self._node.kubelet.devices(uid).get(_CONTAINER, {}))
            )
        self._done["looked"] += 1

    def _count(self) -> None:
        kubelet, plugin = self._node.kubelet, self._node.of_plugin.count
        status = kubelet.node_status()
        counts = {
            "capacity": kubelet.capacity().get(RESOURCE),
            "allocatable": kubelet.allocatable().get(RESOURCE),
            "the status": status.capacity.get(RESOURCE),
        }
        self._done["counted"] += 1
        if self._plugin_was_there(plugin):
            wrong = {what: count for what, count in counts.items() if count != self._node.devices}
            if wrong:
                raise InternalError(f"there are {self._node.devices} devices, not {wrong}")

    def _list(self) -> None:
        listed = {pod.name: pod for pod in self._client.list()}
        for uid in self.held:
            containers = listed[uid].containers if uid in listed else ()
            ids = frozenset(id_ for c in containers for d in c.devices for id_ in d.device_ids)
            self._compare("PodResources", uid, ids)
        self._done["listed"] += 1

    def _compare(self, who: str, uid: str, devices: Devices) -> None:
        if devices != self.held[uid]:
            told = sorted(self.held[uid])
            raise InternalError(f"{who} says {uid} has {sorted(devices)}, it was given {told}")

    def _plugin_was_there(self, since: int) -> bool:
        """Whether it has been all the time since there had been so many upheavals of it."""
        return since % 2 == 0 and since == self._node.of_plugin.count

    # -- upheavals -------------------------------------------------------------------

    def _restart_plugin(self) -> None:
        self._done["plugin restarts"] += self._node.restart_plugin()

    def _restart_kubelet(self) -> None:
        self._done["kubelet restarts"] += self._node.restart_kubelet()

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """What fails while something restarts is no fault; it was to be undone by then."""
        kubelet, plugin = self._node.of_kubelet, self._node.of_plugin
        before = kubelet.count, plugin.count
        was_on = kubelet.is_on or plugin.is_on
        try:
            yield
        except (RequestError, AllocationError, PodResourcesError):
            if not was_on and before == (kubelet.count, plugin.count):
                raise
            self._done["disturbed"] += 1
            self._given_up.wait(_PAUSE)


def _pod(uid: str, count: int) -> Pod:
    limits = {ResourceName(RESOURCE): count}
    container = Container(ContainerName(_CONTAINER), limits, requests=limits)
    return Pod(PodUid(uid), uid, "stress", (container,), restart_policy=RestartPolicy.NEVER)


def _all(devices: dict[str, list[str]]) -> Devices:
    return frozenset(id_ for ids in devices.values() for id_ in ids)

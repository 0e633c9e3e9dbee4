"""Use everything of one kubelet at the same time: pods, structured claims, the control API, HTTP,
PodResources and restarts.

Each activity has a thread, which repeats a round of work until the lap ends. A round leaves nothing
behind, so the figures of all laps must be equal.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from time import monotonic
from typing import Final, Self

from devicemanager.claims import SimulatedHardware
from devicemanager.claims.simulated import publish_hardware
from devicemanager.control import ControlServer, MockKubeletClient
from devicemanager.kubelet.waits import WaitTimeout
from devicemanager.observe.web import HttpServer
from devicemanager.testing import pod_manifest
from podresources.client import PodResourcesClient
from tools.harness.node import Node
from tools.harness.plugin import RESOURCE
from tools.harness.usage import Reading

_DEVICES: Final = 64
_PAUSE: Final = 0.01
"""Seconds between two rounds of an activity, so that the soak test does not use up a CPU."""
_SLOWLY: Final = 1.0
"""Seconds between two rounds of a driver or a plugin."""
_LINES: Final = 5
"""Number of lines that a reader of a stream reads before it disconnects."""
_TIMEOUT: Final = 60.0

# The selector compares a quantity: its evaluation calls functions of this project.
_PARTITION: Final = {"deviceClass": "gpu-partition", "constraints": "device.memory >= '20Gi'"}
_WHOLE: Final = {"deviceClass": "gpu", "requests": {"count": 3}}


class MixedSoak(Node):
    """Kubelet with all its servers, and the activities that use them; a context manager."""

    def __init__(self) -> None:
        super().__init__(_DEVICES)
        self._numbers = itertools.count()
        self._servers = ExitStack()
        self._done = Counter[str]()
        self._over = threading.Event()

    def __enter__(self) -> Self:
        super().__enter__()
        with ExitStack() as stack:
            stack.callback(super().__exit__, None, None, None)
            control = ControlServer(self.kubelet)
            self._http = stack.enter_context(
                HttpServer(self.kubelet, "127.0.0.1:0", control=control)
            )
            self._control = MockKubeletClient(control.socket_path)
            publish_hardware(self.kubelet.claims, SimulatedHardware())
            self._servers = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._servers.close()

    def laps(self, minutes: float, laps: int) -> Iterator[tuple[Counter[str], Reading]]:
        """Yield the counts of each lap and the resource use after it.

        Raises Broken or InternalError if the check after a lap fails.
        """
        for _ in range(laps):
            yield self._lap(monotonic() + minutes * 60 / laps), Reading.now()

    def _lap(self, end: float) -> Counter[str]:
        self._done.clear()
        self._over.clear()
        activities = (
            self._admit,
            self._claim,
            self._publish,
            self._reject,
            self._use_control,
            self._follow,
            self._wait,
            self._scrape,
            self._list,
            self._restart_plugin,
        )
        with ThreadPoolExecutor(len(activities)) as pool:
            works = [pool.submit(self._repeat, each, end) for each in activities]
            for work in works:
                work.result()
        self.check({})
        return Counter(self._done)

    def _repeat(self, activity: Callable[[], None], end: float) -> None:
        try:
            while monotonic() < end and not self._over.wait(_PAUSE):
                activity()
                self._done[activity.__name__.strip("_")] += 1
        except BaseException:
            self._over.set()  # the other activities would hide the failure for a whole lap
            raise

    def _name(self) -> str:
        return f"soak-{next(self._numbers)}"

    def _admit(self) -> None:
        name = self._name()
        # The plugin may be restarting, so the pod may be rejected.
        self.kubelet.admit(pod_manifest(name, {RESOURCE: 2}, uid=name))
        self.kubelet.terminate(name)

    def _claim(self) -> None:
        name, claims = self._name(), self.kubelet.claims
        self.kubelet.claim(_claim(name, _PARTITION))
        admission = self.kubelet.admit(pod_manifest(name, claims=[name], uid=name))
        admission.raise_for_rejection()
        self.kubelet.terminate(name)
        claims.withdraw(claims.claim(f"default/{name}").claim)

    def _publish(self) -> None:
        # Constraints are evaluated again for a new pool.
        claims = self.kubelet.claims
        claims.publish(SimulatedHardware().pools(claims.node)[0])
        self._over.wait(_SLOWLY)

    def _reject(self) -> None:
        name, claims = self._name(), self.kubelet.claims
        self.kubelet.claim(_claim(name, _WHOLE))
        self.kubelet.admit(pod_manifest(name, claims=[name], uid=name))
        claims.explain(f"default/{name}").text()
        self.kubelet.terminate(name)
        claims.withdraw(claims.claim(f"default/{name}").claim)

    def _use_control(self) -> None:
        name, client = self._name(), self._control
        client.admit(pod_manifest(name, {RESOURCE: 1}, uid=name)).explain()
        client.pods()
        client.inventory()
        client.calls.all()
        fault = client.faults.set("delay-register", seconds=0.01, times=1)
        client.faults.clear(fault.id)
        client.terminate(name)

    def _follow(self) -> None:
        for _ in itertools.islice(self._control.events.follow(0), _LINES):
            pass

    def _wait(self) -> None:
        self._control.wait_for(lambda: True, timeout=_TIMEOUT)
        # At the end of a lap, no event comes any more.
        with contextlib.suppress(WaitTimeout):
            self._control.wait_for_event("checkpoint-written", timeout=_SLOWLY)

    def _scrape(self) -> None:
        for path in ("metrics", "pods", ""):
            with urllib.request.urlopen(f"{self._http.url}/{path}", timeout=_TIMEOUT) as answer:
                answer.read()
        with urllib.request.urlopen(f"{self._http.url}/page/stream", timeout=_TIMEOUT) as stream:
            stream.readline()

    def _list(self) -> None:
        with PodResourcesClient(self.kubelet.pod_resources_socket, timeout=_TIMEOUT) as client:
            client.list()

    def _restart_plugin(self) -> None:
        self.start_plugin()
        self._over.wait(_SLOWLY)


def _claim(name: str, request: object) -> dict[str, object]:
    return {
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": name},
        "spec": {"claims": [request]},
    }

"""Measure the cost of virtual nodes in a cluster: ``python -m tools.cluster.measure``.

Prints one figure per line. The control plane runs on the same machine, so elapsed times include it.
CPU time per operation is that of this process only. "Net" CPU time does not include the measurement
itself or the work of idle nodes, which is mostly the renewal of leases.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import attrs
import psutil

from devicemanager.client.api import ApiClient
from devicemanager.client.credentials import load
from devicemanager.cluster import Cluster, NodeOptions
from devicemanager.cluster.driver_layouts import simulated_driver
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from tools.cluster.build import BuildError, binaries
from tools.cluster.peer import ControlPlane

GPU: Final = "vendor.com/gpu"
DRIVER: Final = "gpu.example.com"
DEFAULT: Final = "/api/v1/namespaces/default"
RESOURCES: Final = "/apis/resource.k8s.io/v1"
_PATIENCE: Final = 600.0
_LOADS: Final = 2
"""Threads that create and delete the pods of the soak test. One would wait for its requests."""


@attrs.define
class Measuring:
    """Measurement on one control plane, with its sizes."""

    plane: ControlPlane
    api: ApiClient
    nodes: int
    pods: int
    soak: float
    """Duration of the soak test in seconds."""
    rate: float
    """Number of pods created per second in the soak test."""
    uses_dra: bool = False
    """True if a DRA driver publishes the devices, and pods of the soak test have claims."""
    _idle: float = 0.0
    """CPU time that idle nodes use, in seconds per second."""

    def say(self, what: str, value: float, unit: str) -> None:
        """Print a figure with the current load of the machine."""
        print(f"{what:45} {value:10.2f} {unit:8} load {os.getloadavg()[0]:.0f}", flush=True)

    def run(self) -> None:
        """Let nodes join and idle, then create pods and delete them."""
        with Cluster.connect(self.plane.kubeconfig, warn=_warn) as cluster:
            self._join(cluster)
            self._leases(cluster)
            if self.pods:
                self._run_pods(cluster)
            if self.soak:
                self._soak(cluster)
            self.say("nodes that are NotReady", self.nodes - self._count_ready(), "")
            for node in cluster.nodes.values():
                cast(InMemoryKubelet, node.kubelet).self_check()
            used = self.plane.cpu()
            for name, seconds in used.items():
                self.say(f"CPU time of {name}", seconds, "s")

    def _join(self, cluster: Cluster) -> None:
        """Let all nodes join. A tenth of the nodes joins before the measurement starts.

        So the memory of connections, threads, modules and watches is not counted for the nodes.
        """
        first = max(1, self.nodes // 10)
        drivers = (simulated_driver(DRIVER, [0] * 8),) if self.uses_dra else ()
        options = NodeOptions(taints=(), drivers=drivers)
        empty, began, cpu = _rss(), time.monotonic(), time.process_time()
        cluster.join_in_memory("first", first, {GPU: 8}, options=options)
        waits, idles = time.monotonic(), time.process_time()
        _wait(lambda: self._count_ready() == self._count_untainted() == first)
        before = _rss()
        began += time.monotonic() - waits
        cpu += time.process_time() - idles
        cluster.join_in_memory("m", self.nodes - first, {GPU: 8}, options=options)
        self.say(f"{self.nodes} nodes registered", time.monotonic() - began, "s")
        self.say("CPU time per node", 1000 * (time.process_time() - cpu) / self.nodes, "ms")
        if self.uses_dra:
            slices = f"{RESOURCES}/resourceslices"
            _wait(lambda: _count(self.api, slices) == self.nodes, interval=0.05)
            self.say(f"{self.nodes} slices published", time.monotonic() - began, "s")
        _wait(lambda: self._count_ready() == self.nodes)
        self.say(f"{self.nodes} nodes Ready", time.monotonic() - began, "s")
        # The controller manager removes the taint later, at a rate of its own.
        _wait(lambda: self._count_untainted() == self.nodes)
        self.say(f"{self.nodes} nodes without the taint", time.monotonic() - began, "s")
        self.say("memory per node, net", (_rss() - before) / max(1, self.nodes - first), "KiB")
        self.say("memory of all, with connections", (_rss() - empty) / 1024, "MiB")

    def _leases(self, cluster: Cluster, seconds: float = 20.0) -> None:
        cpu, count = time.process_time(), cluster.lease_lag.renewals
        time.sleep(seconds)
        done, used = cluster.lease_lag.renewals - count, time.process_time() - cpu
        self._idle = used / seconds
        self.say("leases renewed per second", done / seconds, "/s")
        self.say("CPU time per lease, with all of an idle node", 1000 * used / max(1, done), "ms")
        self.say("worst lateness of a lease", cluster.lease_lag.worst, "s")

    def _run_pods(self, cluster: Cluster) -> None:
        first = max(1, self.pods // 5)
        self._deployment(first)
        _wait(lambda: self._is_done(cluster, {"Running": first}))
        before, rest = _rss(), self.pods - first
        leases = cluster.lease_lag.renewals
        with self._net("pod start", f"{rest} pods of a Deployment Running", rest):
            self._scale(self.pods)
            _wait(lambda: self._is_done(cluster, {"Running": self.pods}))
        self.say("leases renewed during that", cluster.lease_lag.renewals - leases, "")
        self.say("worst lateness of a lease", cluster.lease_lag.worst, "s")
        self.say("memory per pod, net", (_rss() - before) / max(1, rest), "KiB")
        with self._net("deletion", f"{self.pods} pods deleted", self.pods):
            self._scale(0)
            _wait(lambda: self._is_done(cluster, {}))

    @contextmanager
    def _net(self, what: str, goal: str, count: int) -> Iterator[None]:
        """Measure the CPU time per operation in a ``with`` block, without this thread and without
        idle nodes."""
        began, cpu, mine = time.monotonic(), time.process_time(), time.thread_time()
        yield
        seconds = time.monotonic() - began
        used = time.process_time() - cpu - (time.thread_time() - mine)
        self.say(goal, seconds, "s")
        self.say(f"CPU time per {what}, gross", 1000 * used / count, "ms")
        net = used - self._idle * seconds
        self.say(f"CPU time per {what}, net", 1000 * net / count, "ms")

    def _soak(self, cluster: Cluster) -> None:
        """Create pods at a constant rate, and delete each pod 10 seconds later."""
        if self.uses_dra:
            self._create_template()
        before = self.plane.cpu()
        began, cpu, mine = time.monotonic(), time.process_time(), time.thread_time()
        worst = not_ready = 0.0
        with ThreadPoolExecutor(_LOADS) as pool:
            loads = [pool.submit(self._load, number, began) for number in range(_LOADS)]
            while any(not load.done() for load in loads):
                wait(loads, 10)
                not_ready = max(not_ready, self.nodes - self._count_ready())
                worst = max(worst, cluster.lease_lag.worst)
            created, spent = (
                sum(each) for each in zip(*(load.result() for load in loads), strict=True)
            )
        _wait(lambda: self._is_done(cluster, {}))
        seconds = time.monotonic() - began
        self.say("soak: pods created per second", created / self.soak, "/s")
        self.say("soak: time until all pods are deleted", seconds - self.soak, "s")
        # These threads create, delete and count the pods. That is not the work of the nodes.
        used = time.process_time() - cpu - (time.thread_time() - mine) - spent
        plane = sum(self.plane.cpu().values()) - sum(before.values())
        self.say("soak: CPU time per second, without the load's", used / seconds, "s")
        self.say("soak: part of the control plane's CPU time", used / plane, "")
        self.say("soak: most nodes NotReady at once", not_ready, "")
        self.say("soak: worst lateness of a lease", worst, "s")
        allocated = sum(
            each.pod is not None
            for node in cluster.nodes.values()
            for each in node.kubelet.inventory()
        )
        self.say("soak: devices allocated at the end", allocated, "")
        if self.uses_dra:
            claims = f"{RESOURCES}/resourceclaims"
            _wait(lambda: not _count(self.api, claims))
            kubelets = (cast(InMemoryKubelet, node.kubelet) for node in cluster.nodes.values())
            prepared = sum(map(_prepared, kubelets))
            self.say("soak: claims prepared at the end", prepared, "")

    def _load(self, number: int, began: float) -> tuple[int, float]:
        """Create the pods ``number``, ``number + _LOADS`` and so on, each when it is due.

        Each pod is deleted 10 seconds later. Returns the number of pods and the CPU time of this
        thread.
        """
        created: deque[str] = deque()
        count, cpu = 0, time.thread_time()
        while (now := time.monotonic()) < began + self.soak:
            while number < (now - began) * self.rate:
                name = f"s-{number}"
                self.api.request("POST", f"{DEFAULT}/pods", _pod(name, uses_dra=self.uses_dra))
                created.append(name)
                count += 1
                number += _LOADS
                if len(created) > 10 * self.rate / _LOADS:
                    self.api.request("DELETE", f"{DEFAULT}/pods/{created.popleft()}")
            time.sleep(0.02)
        for name in created:
            self.api.request("DELETE", f"{DEFAULT}/pods/{name}")
        return count, time.thread_time() - cpu

    def _create_template(self) -> None:
        selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
        group = {"apiVersion": "resource.k8s.io/v1"}
        kind = {"kind": "DeviceClass", "metadata": {"name": DRIVER}}
        body = {**group, **kind, "spec": {"selectors": [selector]}}
        self.api.request("POST", f"{RESOURCES}/deviceclasses", body)
        request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
        kind = {"kind": "ResourceClaimTemplate", "metadata": {"name": "gpu"}}
        body = {**group, **kind, "spec": {"spec": {"devices": {"requests": [request]}}}}
        path = f"{RESOURCES}/namespaces/default/resourceclaimtemplates"
        self.api.request("POST", path, body)

    def _is_done(self, cluster: Cluster, phases: dict[str, int]) -> bool:
        """True if the pods have these phases and no request is pending."""
        return cluster.pod_counts() == phases and cluster.pending_requests == 0

    def _count_ready(self) -> int:
        return sum(_is_ready(node) for node in _all(self.api, "/api/v1/nodes"))

    def _count_untainted(self) -> int:
        return sum(not _is_tainted(node) for node in _all(self.api, "/api/v1/nodes"))

    def _deployment(self, replicas: int) -> None:
        container = {"name": "c", "image": "i", "resources": {"limits": {GPU: "1"}}}
        template = {"metadata": {"labels": {"a": "m"}}, "spec": {"containers": [container]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"a": "m"}}, "template": template}
        body = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "m"},
            "spec": spec,
        }
        self.api.request("POST", "/apis/apps/v1/namespaces/default/deployments", body)

    def _scale(self, replicas: int) -> None:
        path = "/apis/apps/v1/namespaces/default/deployments/m"
        self.api.request("PATCH", path, {"spec": {"replicas": replicas}}, patch="merge")


def _pod(name: str, *, uses_dra: bool) -> dict[str, Any]:
    resources = {"claims": [{"name": "gpu"}]} if uses_dra else {"limits": {GPU: "1"}}
    container = {"name": "c", "image": "i", "resources": resources}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    if uses_dra:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    return {"metadata": {"name": name}, "spec": spec}


def _is_tainted(node: dict[str, Any]) -> bool:
    return any(each["key"].endswith("not-ready") for each in node["spec"].get("taints", ()))


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _count(api: ApiClient, path: str) -> int:
    # The API server returns how many objects follow the first page. To list all objects would take
    # much CPU time during the measurement.
    page = api.request("GET", path, query={"limit": "1"})
    metadata = page["metadata"]
    if metadata.get("continue") and "remainingItemCount" not in metadata:
        raise KeyError(f"no remainingItemCount in the list {path}, which has more pages")
    return len(page["items"]) + int(metadata.get("remainingItemCount", 0))


def _all(api: ApiClient, path: str) -> Iterator[dict[str, Any]]:
    # Small pages, so that the measurement hardly changes the memory of the process.
    query = {"limit": "50"}
    while True:
        page = api.request("GET", path, query=query)
        yield from page["items"]
        if not page["metadata"].get("continue"):
            return
        query["continue"] = page["metadata"]["continue"]


def _prepared(kubelet: InMemoryKubelet) -> int:
    """Return the number of claims that a node has prepared."""
    dra = kubelet._life.serving().dra.if_used
    return 0 if dra is None else len(dra.claims)


def _wait(test: Callable[[], bool], interval: float = 0.25) -> None:
    end = time.monotonic() + _PATIENCE
    while not test():
        if time.monotonic() > end:
            raise TimeoutError(
                f"the nodes or pods did not reach the state within {_PATIENCE:.0f} s"
            )
        time.sleep(interval)


def _rss() -> int:
    """Return the resident memory in KiB, after a garbage collection."""
    gc.collect()
    return psutil.Process().memory_info().rss // 1024


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Run the measurement and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.cluster.measure", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--soak", type=float, default=0, help="seconds of the soak test")
    parser.add_argument("--rate", type=float, default=20, help="pods per second in the soak test")
    parser.add_argument(
        "--dra", action="store_true", help="a DRA driver on each node; soak pods have claims"
    )
    args = parser.parse_args()
    try:
        programs = binaries()
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="dm-plane-") as directory,
        ControlPlane(programs, Path(directory)) as plane,
    ):
        api = ApiClient(load(plane.kubeconfig))
        Measuring(plane, api, args.nodes, args.pods, args.soak, args.rate, args.dra).run()
        api.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What nodes in a cluster cost, on a real control plane: ``python -m tools.cluster.measure``.

Prints a line a figure. Everything is on one machine, so seconds say as much about the control
plane as about us; processor time per operation is ours alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import attrs
import psutil

from devicemanager.cluster import Cluster, NodeOptions
from devicemanager.cluster.api import ApiClient
from devicemanager.cluster.credentials import load
from devicemanager.light.kubelet import LightKubelet
from tools.cluster.build import BuildError, binaries
from tools.cluster.peer import ControlPlane

__all__ = ["main"]

GPU: Final = "vendor.com/gpu"
DEFAULT: Final = "/api/v1/namespaces/default"
_PATIENCE: Final = 600.0


@attrs.define
class Measuring:
    """One run."""

    plane: ControlPlane
    api: ApiClient
    nodes: int
    pods: int
    soak: float
    """Seconds."""
    rate: float
    """Pods a second while soaking."""

    def say(self, what: str, value: float, unit: str) -> None:
        """A figure, with the load of the machine at that time."""
        print(f"{what:45} {value:10.2f} {unit:8} load {os.getloadavg()[0]:.0f}", flush=True)

    def run(self) -> None:
        """Join, idle, run pods, delete them."""
        with Cluster.connect(self.plane.kubeconfig, warn=_warn) as cluster:
            before = _rss()
            began, cpu = time.monotonic(), time.process_time()
            cluster.join_light("m", self.nodes, {GPU: 8}, options=NodeOptions(taints=()))
            self.say(f"{self.nodes} nodes registered", time.monotonic() - began, "s")
            self.say(
                "processor time per node", 1000 * (time.process_time() - cpu) / self.nodes, "ms"
            )
            _wait(lambda: self._count_ready() == self.nodes)
            self.say(f"{self.nodes} nodes Ready, without the taint", time.monotonic() - began, "s")
            self.say("memory per node", (_rss() - before) / self.nodes, "KiB")
            self._leases(cluster)
            if self.pods:
                self._run_pods(cluster)
            if self.soak:
                self._soak(cluster)
            self.say("nodes that are NotReady", self.nodes - self._count_ready(), "")
            for node in cluster.nodes.values():
                cast(LightKubelet, node.kubelet).self_check()
            used = self.plane.cpu()
            for name, seconds in used.items():
                self.say(f"processor time of {name}", seconds, "s")

    def _leases(self, cluster: Cluster, seconds: float = 30.0) -> None:
        lane = cluster.connection.heartbeat
        cpu, count = time.process_time(), lane.lag.renewals
        time.sleep(seconds)
        done = lane.lag.renewals - count
        self.say("leases renewed per second", done / seconds, "/s")
        self.say(
            "processor time per lease", 1000 * (time.process_time() - cpu) / max(1, done), "ms"
        )
        self.say("worst lateness of a lease", lane.lag.worst, "s")

    def _run_pods(self, cluster: Cluster) -> None:
        lane = cluster.connection.heartbeat
        began, cpu, leases = time.monotonic(), time.process_time(), lane.lag.renewals
        self._deployment(self.pods)
        _wait(lambda: self._phases(cluster).get("Running", 0) == self.pods)
        seconds, used = time.monotonic() - began, time.process_time() - cpu
        self.say(f"{self.pods} pods of a Deployment Running", seconds, "s")
        self.say("processor time per pod start, leases and all", 1000 * used / self.pods, "ms")
        self.say("leases renewed meanwhile", lane.lag.renewals - leases, "")
        self.say("worst lateness of a lease", lane.lag.worst, "s")
        began, cpu = time.monotonic(), time.process_time()
        self._scale(0)
        _wait(lambda: not self._phases(cluster))
        self.say(f"{self.pods} pods deleted", time.monotonic() - began, "s")
        self.say(
            "processor time per deletion", 1000 * (time.process_time() - cpu) / self.pods, "ms"
        )

    def _soak(self, cluster: Cluster) -> None:
        """Pods come at a rate, run for some seconds and are deleted."""
        lane = cluster.connection.heartbeat
        began, cpu, created = time.monotonic(), time.process_time(), 0
        worst = not_ready = 0.0
        looked = began
        while (now := time.monotonic()) < began + self.soak:
            while created < (now - began) * self.rate:
                self.api.request("POST", f"{DEFAULT}/pods", _pod(f"s-{created}"))
                created += 1
                if created > 10 * self.rate:
                    name = f"s-{created - 1 - int(10 * self.rate)}"
                    self.api.request("DELETE", f"{DEFAULT}/pods/{name}")
            if now > looked + 10:
                looked = now
                not_ready = max(not_ready, self.nodes - self._count_ready())
                worst = max(worst, lane.lag.worst)
            time.sleep(0.02)
        for number in range(max(0, created - int(10 * self.rate)), created):
            self.api.request("DELETE", f"{DEFAULT}/pods/s-{number}")
        _wait(lambda: not self._phases(cluster))
        seconds = time.monotonic() - began
        self.say("soak: pods per second", created / seconds, "/s")
        self.say(
            "soak: processor time per second, the load included",
            (time.process_time() - cpu) / seconds,
            "s",
        )
        self.say("soak: most nodes NotReady at once", not_ready, "")
        self.say("soak: worst lateness of a lease", worst, "s")
        held = sum(
            each.pod is not None
            for node in cluster.nodes.values()
            for each in node.kubelet.inventory()
        )
        self.say("soak: devices held at the end", held, "")

    def _phases(self, cluster: Cluster) -> dict[str, int]:
        return cluster.pod_counts()

    def _count_ready(self) -> int:
        return sum(_is_ready(node) for node in _all(self.api, "/api/v1/nodes"))

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


def _pod(name: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: "1"}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {"metadata": {"name": name}, "spec": spec}


def _is_ready(node: dict[str, Any]) -> bool:
    if any(each["key"].endswith("not-ready") for each in node["spec"].get("taints", ())):
        return False
    conditions = node["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _all(api: ApiClient, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    query = {"limit": "500"}
    while True:
        page = api.request("GET", path, query=query)
        found += page["items"]
        if not page["metadata"].get("continue"):
            return found
        query["continue"] = page["metadata"]["continue"]


def _wait(test: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE
    while not test():
        if time.monotonic() > end:
            raise TimeoutError(f"not in {_PATIENCE:.0f} s")
        time.sleep(0.25)


def _rss() -> int:
    """In KiB."""
    return psutil.Process().memory_info().rss // 1024


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.cluster.measure", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--soak", type=float, default=0, help="seconds of pods that come and go")
    parser.add_argument("--rate", type=float, default=20, help="of these, a second")
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
        Measuring(plane, api, args.nodes, args.pods, args.soak, args.rate).run()
        api.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

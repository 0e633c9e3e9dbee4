"""``python -m tools.terminal_picture``: draw terminal views for the documentation as SVG."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from devicemanager import ManualClock, MockKubelet, Settings
from devicemanager.apiserver import FakeApiServer
from devicemanager.cluster import Cluster
from devicemanager.core.nodestatus.conditions import Pressure
from devicemanager.core.topology import NumaTopology
from devicemanager.observe.terminal.keys import ScreenState
from devicemanager.observe.terminal.rows import LogLine, Shown
from devicemanager.observe.terminal.screen import draw
from devicemanager.observe.view import ClusterView, ClusterViewBuilder, KubeletView, NodeView
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from devicemanager.testing import pod_manifest

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT = 80, 24
GPU, NIC = "vendor.com/gpu", "vendor.com/nic"
SERVER = "https://cluster.example:6443"
BEGIN = 1_800_000_000.0
"""Fixed time in seconds since the epoch, so that all runs draw the same picture."""


def scene() -> NodeView:
    """Return the view of a node with eight GPUs and four NICs on two NUMA nodes. Some devices are
    allocated or unhealthy."""
    settings = Settings(node_name="worker-1", topology_policy="restricted")
    with ExitStack() as stack:
        clock = ManualClock(BEGIN)
        kubelet = stack.enter_context(MockKubelet(settings=settings, clock=clock))
        gpus = simulate(stack, kubelet, GPU, 8)
        simulate(stack, kubelet, NIC, 4)
        for name, devices in (
            ("train", {GPU: 2, NIC: 1}),
            ("serve", {GPU: 1}),
            ("batch", {GPU: 2}),
            ("greedy", {GPU: 9}),
        ):
            # Advance the clock, so that the picture shows how ages are displayed.
            clock.advance(7)
            kubelet.admit(pod_manifest(name, devices, namespace="ml"))
        clock.advance(7)
        gpus.set_health("gpu-mock-3", False)
        gpus.remove("gpu-mock-2")
        kubelet.wait_for_resource(GPU, 6)
        return KubeletView(kubelet).refresh()


def simulate(stack: ExitStack, kubelet: MockKubelet, resource: str, count: int) -> SimulatedPlugin:
    name = resource.rpartition("/")[2]
    settings = SimulationSettings(
        resource_name=resource,
        number_devices=count,
        numa=tuple(number * 2 // count for number in range(count)),
        plugin_name=name,
        device_id_prefix=name,
        node_name="mock",
    )
    plugin = stack.enter_context(SimulatedPlugin(settings, kubelet.plugin_dir))
    kubelet.wait_for_resource(resource, count)
    return plugin


def crowd() -> ClusterView:
    """Return the view of six nodes: one has rejected a pod, one has an unhealthy device, and two
    report problems."""
    settings = Settings(topology_policy="single-numa-node", numa=NumaTopology.of([0, 1]))
    with FakeApiServer() as stub, tempfile.TemporaryDirectory() as directory:
        stub.create("namespaces", {"metadata": {"name": "ml"}})
        kubeconfig = stub.kubeconfig(Path(directory) / "kubeconfig")
        with Cluster.connect(kubeconfig) as cluster:
            nodes = cluster.join_in_memory(
                "rack", 6, {GPU: "8@0,1", NIC: "2@0,1"}, settings=settings
            )
            for number, devices in enumerate((4, 3, 2, 4, 4, 5, 1)):
                _bound_pod(stub, f"train-{number}", nodes[number % 5].name, devices)
            nodes[2].fail_device(GPU, "gpu-6")
            nodes[3].pressure([Pressure.DISK])
            nodes[4].not_ready("the fan is off")
            picture = ClusterViewBuilder(SERVER, lambda: cluster.nodes).refresh()
    assert len(picture.nodes) == 6
    return picture


def _bound_pod(stub: FakeApiServer, name: str, node: str, devices: int) -> None:
    """Create a pod and wait until its node has run or rejected it."""
    container = {"name": "main", "image": "i", "resources": {"limits": {GPU: str(devices)}}}
    spec = {"nodeName": node, "containers": [container]}
    stub.create("pods", {"metadata": {"name": name}, "spec": spec}, "ml")
    end = time.monotonic() + 30
    while (stub.get("pods", name, "ml") or {})["status"].get("phase") in (None, "Pending"):
        assert time.monotonic() < end, f"pod {name} is still pending"
        time.sleep(0.01)


def svg(picture: NodeView | ClusterView, title: str, events: Sequence[LogLine], now: float) -> str:
    """Return the first screen of a command as SVG, without rich's web font: a picture must not load
    other files."""
    drawn = draw(picture, ScreenState(), WIDTH, HEIGHT, Shown(events, now))
    console = Console(
        file=io.StringIO(),
        record=True,
        width=WIDTH,
        color_system="truecolor",
        force_terminal=True,
        no_color=False,
        legacy_windows=False,
    )
    for line in drawn.lines:
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    drawing = console.export_svg(title=title, unique_id="terminal")
    return re.sub(r"\s*@font-face \{.*?\}", "", drawing, flags=re.DOTALL)


def write(directory: Path) -> None:
    """Write ``terminal.svg`` and ``terminal-nodes.svg``, with times in UTC."""
    directory.mkdir(parents=True, exist_ok=True)
    # Use UTC: the picture must not depend on the time zone of the machine.
    os.environ["TZ"] = "UTC"
    time.tzset()
    picture = scene()
    events = picture.events or ()
    lines = [LogLine(each.time, str(each), each.is_warning) for each in events]
    drawing = svg(picture, "devicemanager run", lines, picture.revision)
    (directory / "terminal.svg").write_text(drawing)
    lines = [
        LogLine(BEGIN, f"cluster: {SERVER}, v1.32.13"),
        LogLine(BEGIN, "6 nodes joined in 0.1 s"),
        LogLine(BEGIN, "ready; Ctrl-C leaves"),
    ]
    drawing = svg(crowd(), "devicemanager join", lines, BEGIN)
    (directory / "terminal-nodes.svg").write_text(drawing)


def main() -> int:
    """Write the pictures to the output directory."""
    parser = argparse.ArgumentParser(prog="python -m tools.terminal_picture", description=__doc__)
    parser.add_argument("--directory", type=Path, default=ROOT / "docs" / "images")
    write(parser.parse_args().directory.absolute())
    return 0


if __name__ == "__main__":
    sys.exit(main())

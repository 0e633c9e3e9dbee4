"""``python -m tools.terminal_picture``: the terminal view for the documentation, as SVG."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from devicemanager import ManualClock, MockKubelet, Settings
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from devicemanager.terminal.keys import ScreenState
from devicemanager.terminal.rows import LogLine, Shown
from devicemanager.terminal.screen import draw
from devicemanager.testing import pod_manifest
from devicemanager.view import KubeletView, NodeView

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT = 80, 24
GPU, NIC = "vendor.com/gpu", "vendor.com/nic"
BEGIN = 1_800_000_000.0
"""So that one run's picture is another's."""


def scene() -> NodeView:
    """Eight GPUs and four NICs on two NUMA nodes; held, unhealthy and gone ones among them."""
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
            clock.advance(7)
            kubelet.admit(pod_manifest(name, devices, namespace="ml"))
        clock.advance(7)
        gpus.set_health("gpu-mock-3", False)
        gpus.remove("gpu-mock-2")
        kubelet.wait_for_resource(GPU, 6)
        return KubeletView(kubelet).look()


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


def svg(picture: NodeView) -> str:
    """The first screen of ``devicemanager run``. Without the font that rich would fetch: the
    reader's own will do."""
    events = picture.events or ()
    lines = [LogLine(each.time, str(each), each.is_warning) for each in events]
    drawn = draw(picture, ScreenState(), WIDTH, HEIGHT, Shown(lines, picture.revision))
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
    drawing = console.export_svg(title="devicemanager run", unique_id="terminal")
    return re.sub(r"\s*@font-face \{.*?\}", "", drawing, flags=re.DOTALL)


def write(directory: Path) -> None:
    """``terminal.svg`` in the directory, with times in UTC."""
    directory.mkdir(parents=True, exist_ok=True)
    os.environ["TZ"] = "UTC"
    time.tzset()
    (directory / "terminal.svg").write_text(svg(scene()))


def main() -> int:
    """Write the picture."""
    parser = argparse.ArgumentParser(prog="python -m tools.terminal_picture", description=__doc__)
    parser.add_argument("--directory", type=Path, default=ROOT / "docs" / "images")
    write(parser.parse_args().directory.absolute())
    return 0


if __name__ == "__main__":
    sys.exit(main())

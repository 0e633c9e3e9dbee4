"""Benchmark memory: the resident set size of the kubelet's process."""

from __future__ import annotations

import gc
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from devicemanager.kubelet.mock import MockKubelet
from tools.bench.environment import PluginProcess, admit, node, pod
from tools.bench.model import Case, Measurement, Scale
from tools.bench.plugin import RESOURCE
from tools.bench.startup import running

_KB, _MB = 1000, 1_000_000
_SELF: Final = "self"
_TIMEOUT: Final = 60.0


def cases(scale: Scale) -> list[Case]:
    """Return the cases: memory at rest, per device and per pod."""
    return [
        Case("rest", _rest),
        Case("per-device", partial(_per_device, scale.many_devices)),
        Case("per-pod", partial(_per_pod, scale.pods)),
    ]


def resident(process: int | str = _SELF) -> int:
    """Return the resident set size of a process in bytes."""
    # Uncollected garbage would count as memory of the devices or pods.
    gc.collect()
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {process} has no resident set: has it exited?")


def _rest() -> list[Measurement]:
    with tempfile.TemporaryDirectory(prefix="dm-", dir="/tmp") as root, running(Path(root)) as run:
        assert run.stdout is not None, "the process was started with a pipe"
        for line in run.stdout:
            if "ready" in line:
                break
        used = resident(run.pid)
    return [Measurement("memory of devicemanager run at rest", [used / _MB], "MB", at_most=60)]


def _per_device(devices: int) -> list[Measurement]:
    with MockKubelet() as kubelet, PluginProcess(kubelet.plugin_dir, devices, 2) as plugin:
        before = resident()
        plugin.register()
        kubelet.wait_for_resource(RESOURCE, devices, timeout=_TIMEOUT)
        # A second list reuses the memory that decoding the first list has freed. The memory that
        # remains is that of the devices.
        plugin.change(0)
        kubelet.wait_for_resource(RESOURCE, devices - 1, timeout=_TIMEOUT)
        added = resident() - before
    return [Measurement("memory per device", [added / devices / _KB], "kB", at_most=1)]


def _per_pod(pods: int) -> list[Measurement]:
    """Measure the memory of the second half of the pods. The first half includes one-time costs."""
    half = pods // 2
    with node(pods) as (kubelet, _):
        admit(kubelet, *map(pod, range(half)))
        before = resident()
        admit(kubelet, *map(pod, range(half, 2 * half)))
        added = resident() - before
    return [Measurement("memory per pod with one device", [added / half / _KB], "kB", at_most=4)]

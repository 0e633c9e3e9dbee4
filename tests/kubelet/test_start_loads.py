"""What a kubelet loads to start. A count says what a time would, and says it on any machine."""

import json
import subprocess
import sys

import pytest

_STARTS = """
import json, re, sys
from devicemanager.kubelet.mock import MockKubelet

with MockKubelet():
    pass
made = [
    f"{module.__name__}.{name}: {generated}"
    for module in list(sys.modules.values())
    if module.__name__.partition(".")[0] in ("devicemanager", "podresources", "checkpoint")
    for name, value in vars(module).items()
    if isinstance(value, type) and value.__module__ == module.__name__
    if "__attrs_attrs__" in vars(value)
    for generated in ("__init__", "__eq__", "__hash__", "__repr__")
    if "attrs" in str(getattr(vars(value).get(generated), "__code__", ""))
]
patterns = [
    f"{name}.{variable}"
    for name, module in list(sys.modules.items())
    if name.partition(".")[0] in ("devicemanager", "podresources", "checkpoint")
    for variable, value in vars(module).items()
    if isinstance(value, re.Pattern)
]
print(json.dumps({"modules": sorted(sys.modules), "made": made, "patterns": patterns}))
"""
_ADMITS = """
import json, sys
from devicemanager.kubelet.arguments import parser
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings

manifest = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train"},
    "spec": {
        "containers": [
            {"name": "main", "image": "i", "resources": {"limits": {"vendor.com/gpu": "1"}}}
        ]
    },
}
gpus = SimulationSettings(resource_name="vendor.com/gpu", number_devices=1)
with MockKubelet() as kubelet, SimulatedPlugin(gpus, kubelet.plugin_dir):
    kubelet.wait_for_resource("vendor.com/gpu", 1)
    pod = parser()(manifest)
    before = set(sys.modules)
    assert kubelet.admit(pod).admitted
    print(json.dumps(sorted(set(sys.modules) - before)))
"""

LOOKED_AT = {
    "devicemanager.core.podstatus.status",
    "devicemanager.core.status",
    "devicemanager.kubelet.inventory",
    "devicemanager.kubelet.telemetry",
    "devicemanager.kubelet.manager.state_snapshot",
    "devicemanager.kubelet.pods.apistatus",
}
"""What somebody who looks at a kubelet asks for."""
SELDOM = {
    "checkpoint.parse",
    "devicemanager.claims.manager",
    "devicemanager.core.explanation",
    "devicemanager.faults.fault",
    "devicemanager.kubelet.host.pci",
    "devicemanager.core.runoptions",
    "devicemanager.objects.manifests",
    "devicemanager.kubelet.pods.admission",
    "devicemanager.kubelet.wire.settings",
    "google.protobuf.descriptor_pb2",
    "grpc.experimental",
    "yaml",
}
"""What a node without checkpoint, claims, faults and PCI devices never needs, or only its first
plugin or pod."""
OF_CLIENTS = {
    "podresources.client",
    "podresources.decoding",
    "podresources.values",
}
"""What reads PodResources answers, or is in one."""
MOST_METHODS = 144
"""Each that attrs makes is compiled anew in each process, at some 60 microseconds."""
MOST_PATTERNS = 5
"""Each is compiled anew in each process, at up to 800 microseconds. `re` compiles a text when it
is first used, and keeps that: good enough for what a start does not look for."""


@pytest.fixture(scope="module")
def start():
    return _run(_STARTS)


def _run(program):
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=50, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("modules", [LOOKED_AT, SELDOM, OF_CLIENTS])
def test_a_start_does_not_load(start, modules):
    assert modules & set(start["modules"]) == set()


def test_few_methods_are_made_by_attrs_at_a_start(start):
    made = start["made"]
    assert len(made) <= MOST_METHODS, "\n".join(made)


def test_few_patterns_are_compiled_at_a_start(start):
    patterns = start["patterns"]
    assert len(patterns) <= MOST_PATTERNS, "\n".join(patterns)


def test_an_admission_loads_nothing_after_the_reader_of_manifests():
    """Half way through there may be no descriptor left to load it."""
    assert _run(_ADMITS) == []

"""What a kubelet loads to start. A count says what a time would, and says it on any machine."""

import json
import subprocess
import sys

import pytest

_STARTS = """
import json, sys
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
print(json.dumps({"modules": sorted(sys.modules), "made": made}))
"""

LOOKED_AT = {
    "devicemanager.core.podstatus.status",
    "devicemanager.core.status",
    "devicemanager.kubelet.inventory",
    "devicemanager.kubelet.telemetry",
    "devicemanager.manager.looking",
    "devicemanager.pods.apistatus",
}
"""What somebody who looks at a kubelet asks for."""
SELDOM = {
    "checkpoint.parse",
    "devicemanager.claims.manager",
    "devicemanager.core.explanation",
    "devicemanager.faults.fault",
    "devicemanager.host.pci",
    "devicemanager.manifests",
    "yaml",
}
"""What a node without checkpoint, claims, faults and PCI devices never needs, or only its first
pod."""
OF_CLIENTS = {"podresources.client", "podresources.decoding", "podresources.values"}
"""What reads PodResources answers, or is in one."""
MOST_METHODS = 212
"""Each that attrs makes is compiled anew in each process, at some 60 microseconds."""


@pytest.fixture(scope="module")
def start():
    command = [sys.executable, "-c", _STARTS]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=50, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("modules", [LOOKED_AT, SELDOM, OF_CLIENTS])
def test_a_start_does_not_load(start, modules):
    assert modules & set(start["modules"]) == set()


def test_few_methods_are_made_by_attrs_at_a_start(start):
    made = start["made"]
    assert len(made) <= MOST_METHODS, "\n".join(made)

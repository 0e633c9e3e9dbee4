"""Importing public names of ``devicemanager`` and its package ``testing`` loads nothing heavy."""

import subprocess
import sys

import pytest

import devicemanager

HEAVY = {"google.protobuf", "grpc", "kubernetes", "rich", "tenacity", "watchdog", "yaml"}


def loaded_by(code):
    """Return the heavy packages that a new interpreter has loaded after ``code``."""
    program = f"import sys\n{code}\nprint(*sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=50
    )
    return set(done.stdout.split())


def test_public_name_is_the_class_itself():
    from devicemanager.kubelet.mock import MockKubelet

    assert devicemanager.MockKubelet is MockKubelet
    assert "MockKubelet" in dir(devicemanager)


@pytest.mark.parametrize(
    "code",
    [
        "import devicemanager",
        "import devicemanager.testing",
        "import devicemanager.testing.pytest_plugin",
        "from devicemanager.testing import pod_manifest; pod_manifest('a', {'v.com/g': 1})",
        "from devicemanager import ManualClock, EventKind",
    ],
)
def test_importing_loads_nothing_heavy(code):
    assert loaded_by(code) == set()


def test_mock_kubelet_loads_neither_kubernetes_nor_rich():
    assert loaded_by("from devicemanager import MockKubelet").isdisjoint({"kubernetes", "rich"})


def test_kubelet_with_a_plugin_and_a_pod_never_imports_kubernetes():
    """``kubernetes`` is most of an installation; only access to a cluster may pay for it."""
    program = """
from devicemanager import MockKubelet
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from devicemanager.testing import pod_manifest
from podresources import PodResourcesClient

gpus = SimulationSettings(resource_name="vendor.com/gpu", number_devices=2)
with MockKubelet() as kubelet, SimulatedPlugin(gpus, kubelet.plugin_dir):
    kubelet.wait_for_resource("vendor.com/gpu", 2)
    kubelet.admit(pod_manifest("train", {"vendor.com/gpu": 1})).raise_for_rejection()
    kubelet.restart()
    kubelet.wait_for_resource("vendor.com/gpu", 2)
    with PodResourcesClient(kubelet.pod_resources_socket) as client:
        assert [pod.name for pod in client.list()] == ["train"]
"""
    loaded = loaded_by(program)
    assert "kubernetes" not in loaded
    assert "grpc" in loaded

"""Test a plugin in any language. The plugin runs in a separate process.

    PLUGIN="./my-plugin -dir {plugin_dir}" RESOURCE=vendor.com/gpu pytest test_plugin_command.py

Without PLUGIN, the simulated plugin is tested.
"""

import os
import shlex
import sys

import pytest

from devicemanager.testing import pod_manifest

RESOURCE = os.environ.get("RESOURCE", "vendor.com/gpu")
SIMULATED = f"{sys.executable} -m devicemanager.plugin.simulated --resource-name {RESOURCE}"
COMMAND = shlex.split(os.environ.get("PLUGIN", SIMULATED))


@pytest.fixture
def plugin(plugin_process):
    # plugin_process returns when the plugin has registered its devices, and fails if the plugin
    # exits.
    return plugin_process(COMMAND, RESOURCE)


def test_pod_gets_a_device(mock_kubelet, plugin):
    admission = mock_kubelet.admit(pod_manifest("train", {RESOURCE: 1}))
    admission.raise_for_rejection()
    assert len(admission.containers["main"].devices[RESOURCE]) == 1


def test_pod_keeps_its_device_after_a_kubelet_restart(mock_kubelet, plugin):
    mock_kubelet.admit(pod_manifest("train", {RESOURCE: 1}, uid="train")).raise_for_rejection()
    before = mock_kubelet.devices("train")
    mock_kubelet.restart()
    mock_kubelet.wait_for_resource(RESOURCE)
    assert mock_kubelet.devices("train") == before


def test_pod_with_too_many_devices_is_rejected(mock_kubelet, plugin):
    too_many = mock_kubelet.allocatable()[RESOURCE] + 1
    admission = mock_kubelet.admit(pod_manifest("greedy", {RESOURCE: too_many}))
    assert admission.reason == "UnexpectedAdmissionError"


def test_devices_are_unhealthy_after_the_plugin_exits(mock_kubelet, plugin):
    assert plugin.terminate() == 0
    mock_kubelet.wait_for_resource(RESOURCE, 0)

"""Devices of pods rejected at a restart, and the checkpoint, as in the reference kubelet.

``tools.differential`` found these cases."""

from __future__ import annotations

import pytest

import checkpoint
from devicemanager.core.ids import ResourceName
from devicemanager.events.stream import EventKind
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.testing import pod_manifest
from devicemanager.testing.factories import MockKubeletFactory
from devicemanager.testing.fakes import FakePlugin
from podresources import PodResourcesClient
from tests.helpers import device, devices, pod

GPU = "vendor.com/gpu"


@pytest.fixture
def kubelet(make_mock_kubelet: MockKubeletFactory) -> MockKubelet:
    return make_mock_kubelet()


def register(kubelet: MockKubelet, *ids: str) -> None:
    plugin = FakePlugin(GPU)
    plugin.register(kubelet.manager.plugins)
    plugin.send_list(devices(*ids))


def listed(kubelet: MockKubelet) -> list[str]:
    """Return the device IDs of all pods in v1alpha1 List, which includes rejected pods."""
    with PodResourcesClient(kubelet.pod_resources_socket) as client:
        return [
            id_
            for pod in client.list_v1alpha1()
            for container in pod.containers
            for device in container.devices
            for id_ in device.device_ids
        ]


def entries(kubelet: MockKubelet) -> int:
    return len(checkpoint.loads(kubelet.checkpoint_path.read_bytes()).entries or ())


def test_list_frees_devices_of_rejected_pods(kubelet: MockKubelet) -> None:
    register(kubelet, "a")
    uid = kubelet.admit(pod_manifest("p", {GPU: 1})).pod.uid
    kubelet.reboot()
    assert kubelet.devices(uid) == {"main": {GPU: ["a"]}}
    assert listed(kubelet) == []
    assert kubelet.devices(uid) == {}
    # The checkpoint still has it, until the next write.
    assert entries(kubelet) == 1
    # A restarted kubelet restores it, but the pod is still inactive.
    kubelet.restart()
    (loaded,) = kubelet.events.recent(EventKind.CHECKPOINT_LOADED)[-1:]
    assert loaded.message == f"{kubelet.checkpoint_path}: devices of 1 pod, 1 resource"
    assert kubelet.devices(uid) == {"main": {GPU: ["a"]}}
    assert listed(kubelet) == []
    register(kubelet, "a")
    assert entries(kubelet) == 0
    kubelet.manager.self_check()


def test_first_list_after_a_restart_is_written(kubelet: MockKubelet) -> None:
    register(kubelet, "a")
    kubelet.restart()
    assert checkpoint.loads(kubelet.checkpoint_path.read_bytes()).registered_devices == {
        GPU: ("a",)
    }
    register(kubelet)
    assert checkpoint.loads(kubelet.checkpoint_path.read_bytes()).registered_devices == {GPU: ()}


def test_running_container_is_not_allocated_again_after_a_restart(
    make_mock_kubelet: MockKubeletFactory,
) -> None:
    """The sources are not ready, even if the checkpoint names no pod: Q16 would reject it."""
    kubelet = make_mock_kubelet(settings=Settings(quirks={"Q16"}))
    register(kubelet, "a")
    uid = kubelet.admit(pod_manifest("p", {GPU: 0})).pod.uid
    kubelet.restart()
    assert kubelet.pods()[uid].message == ""
    kubelet.reboot()
    assert "no healthy devices present" in kubelet.pods()[uid].message


def test_hints_include_devices_of_rejected_pods(kubelet: MockKubelet) -> None:
    plugin = FakePlugin(GPU)
    plugin.register(kubelet.manager.plugins)
    plugin.send_list([device("a", 0)])
    kubelet.admit(pod_manifest("p", {GPU: 1}))
    kubelet.reboot()
    plugin.register(kubelet.manager.plugins)
    plugin.send_list([device("a", 0)])
    first, _ = kubelet.manager.hints(pod("q", gpu=1))
    assert [hint.mask for hint in first[ResourceName(GPU)] or ()] == [1]

"""Plugins that the kubelet's plugin watcher registers."""

import attrs
import grpc
import pytest

from devicemanager.kubelet.mock import MockKubelet
from devicemanager.plugin import ContainerSettings, Manager, Plugin, StaticLister
from devicemanager.plugin.resource import ResourceState
from devicemanager.testing import pod_manifest
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as rpc
from protos import pluginregistration_v1 as pr
from protos import pluginregistration_v1_grpc as registration
from tests.hostile.residue import eventually
from tests.plugin.stubkubelet import TIMEOUT

GPU = "vendor.com/gpu"


class Gpus(Plugin):
    def devices(self):
        return ["gpu-0", "gpu-1"]

    def allocate(self, device_ids):
        return ContainerSettings(envs={"GPUS": ",".join(device_ids)})


@pytest.fixture
def announcing(fast):
    return attrs.evolve(fast, announce=True, recheck=0.2)


def manager_of(directory, settings, plugin):
    return Manager(StaticLister("vendor.com", {"gpu": plugin}), directory, settings)


def test_plugin_watcher_registers_it_after_each_restart(directory, announcing):
    registry = directory / "plugins_registry"
    plugin = Gpus()
    # A starting kubelet finds the existing socket, so the plugin need not create another at once.
    settings = attrs.evolve(announcing, stream_delay=1.0)
    with MockKubelet(directory) as kubelet, manager_of(registry, settings, plugin) as manager:
        kubelet.wait_for_resource(GPU, 2)
        admission = kubelet.admit(pod_manifest("a", {GPU: 1}))
        assert admission.containers["main"].run_options.envs == {"GPUS": "gpu-0"}
        for turn in range(5):
            kubelet.restart()
            plugin.update([f"gpu-{n}" for n in range(turn + 3)])
            kubelet.wait_for_resource(GPU, turn + 3)
        assert manager.wait_registered(TIMEOUT, streaming=True)
        (status,) = manager.resources()
        (registry / status.endpoint).unlink()
        wait(manager, lambda now: now.registrations > status.registrations)
        kubelet.wait_for_resource(GPU, 7)
        assert [e for e in kubelet.plugin_dir.iterdir() if e.is_socket()] == [kubelet.plugin_socket]
        manager.stop()
        kubelet.wait_for_resource(GPU, 0)
        assert list(registry.iterdir()) == []
        kubelet.check()


def wait(manager, condition):
    """Wait for a status of the only resource."""

    def holds():
        return any(map(condition, manager.resources()))

    assert eventually(holds, TIMEOUT), manager.resources()


class Watcher:
    """The calls of the plugin watcher."""

    def __init__(self, socket):
        self.channel = grpc.insecure_channel(f"unix:{socket}")
        self.registration = registration.RegistrationStub(self.channel)
        self.plugin = rpc.DevicePluginStub(self.channel)

    def notify(self, error=""):
        status = pr.RegistrationStatus(plugin_registered=not error, error=error)
        self.registration.NotifyRegistrationStatus(status, timeout=TIMEOUT)


def only_socket(manager):
    """Wait for a served socket and return it."""
    wait(manager, lambda now: now.state is ResourceState.SERVING)
    return manager.directory / manager.resources()[0].endpoint


def test_rejection_by_the_watcher_is_followed_by_another_attempt(directory, announcing, caplog):
    with manager_of(directory, announcing, Gpus()) as manager:
        watcher = Watcher(only_socket(manager))
        with watcher.channel:
            info = watcher.registration.GetInfo(pr.InfoRequest(), timeout=TIMEOUT)
            assert info == pr.PluginInfo(
                type="DevicePlugin", name=GPU, supported_versions=["v1beta1"]
            )
            watcher.notify("not today")
            assert manager.wait_registered(0.01) is False
            watcher.notify()
            assert manager.wait_registered(TIMEOUT)
    assert "registration failed: not today" in caplog.text


def test_end_of_the_list_stream_leads_to_a_new_socket(directory, announcing):
    with manager_of(directory, announcing, Gpus()) as manager:
        first = only_socket(manager)
        watcher = Watcher(first)
        with watcher.channel:
            watcher.notify()
            stream = watcher.plugin.ListAndWatch(dp.Empty(), timeout=TIMEOUT)
            assert len(next(stream).devices) == 2
            assert manager.wait_registered(TIMEOUT, streaming=True)
            stream.cancel()
        second = only_socket(manager)
        assert second != first
        assert list(directory.iterdir()) == [second]


def test_recreated_registry_is_served_again(directory, announcing):
    registry = directory / "plugins_registry"
    with manager_of(registry, announcing, Gpus()) as manager:
        for turn in range(2):
            registry.mkdir()
            assert only_socket(manager).is_socket()
            registry.rename(directory / f"former-{turn}")
            wait(manager, lambda now: now.state is ResourceState.WAITING)

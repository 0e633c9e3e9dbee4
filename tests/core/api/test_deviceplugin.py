"""The constants of the device plugin API, as in ``constants.go`` of k8s.io/kubelet."""

from __future__ import annotations

from devicemanager.core.api import deviceplugin


def test_constants_are_those_of_the_api() -> None:
    assert {name: value for name, value in vars(deviceplugin).items() if name.isupper()} == {
        "VERSION": "v1beta1",
        "HEALTHY": "Healthy",
        "UNHEALTHY": "Unhealthy",
        "MAX_NUMA_NODES": 1024,
        "PLUGIN_DIRECTORY": "/var/lib/kubelet/device-plugins",
        "CHECKPOINT_FILE": "kubelet_internal_checkpoint",
        "KUBELET_SOCKET": "kubelet.sock",
        "PLUGINS_REGISTRY_DIRECTORY": "/var/lib/kubelet/plugins_registry",
        "DEVICE_PLUGIN": "DevicePlugin",
    }

"""Defaults of values and settings that are not empty."""

from __future__ import annotations

from devicemanager import plugin
from tests.helpers import own_defaults


def test_defaults_are_these_or_empty() -> None:
    assert own_defaults(plugin) == {
        "Device.healthy": True,
        "DeviceSpec.permissions": "rw",
        "Faults.lists": "none",
        "Faults.allocate": "none",
        "FilesystemDevice.permissions": "rw",
        "Observation.own_socket": True,
        "PluginSettings.register_timeout": 30.0,
        "PluginSettings.register_backoff": 1.0,
        "PluginSettings.register_backoff_limit": 15.0,
        "PluginSettings.start_attempts": 3,
        "PluginSettings.start_delay": 3.0,
        "PluginSettings.first_list_wait": 2.0,
        "PluginSettings.list_interval": 0.05,
        "PluginSettings.list_backoff": 1.0,
        "PluginSettings.stream_delay": 1.0,
        "PluginSettings.stream_wait": 20.0,
        "PluginSettings.stream_settled": 10.0,
        "PluginSettings.stream_delay_limit": 30.0,
        "PluginSettings.recheck": 2.0,
        "PluginSettings.stop_grace": 2.0,
        "PluginSettings.workers": 16,
        "PluginSettings.max_streams": 8,
        "PluginSettings.reject_unhealthy": True,
        "RecordedCall.code": "OK",
        "SimulatedError.text": "simulated",
        "SimulationSettings.namespace": "simple-device-plugin",
        "SimulationSettings.plugin_name": "simple-device-plugin",
        "SimulationSettings.resource_name": "example.com/simple-device",
        "SimulationSettings.number_devices": 2,
        "SimulationSettings.device_id_prefix": "simple-device",
        "SimulationSettings.id_shape": "index",
        "SimulationSettings.replicas": 2,
        "SimulationSettings.preferred_policy": "none",
        "SimulationSettings.calls_kept": 10_000,
        "SimulationSettings.list_fault": "none",
        "SimulationSettings.allocate_fault": "none",
    }

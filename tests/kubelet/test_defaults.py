"""Defaults of values and settings that are not empty."""

from __future__ import annotations

from devicemanager import kubelet
from tests.helpers import own_defaults


def test_defaults_are_these_or_empty() -> None:
    # `test_settings.py` has the defaults of settings.
    found = {
        name: default
        for name, default in own_defaults(kubelet).items()
        if not name.startswith("Settings.")
    }
    assert found == {
        "CdiDeviceNode.permissions": "rwm",
        "CdiMount.type": "bind",
        "CdiRules.uses": True,
        "ContainerInfo.kind": "app",
        "ContainerInfo.state": "unknown",
        "HostNode.mode": 0o666,
        "PodInfo.schema": "devicemanager.pod/v1",
        "PodInfo.phase": "Unknown",
        "PodInfo.restart_policy": "Always",
        "PodRecord.phase": "Pending",
    }

"""Defaults of values and settings that are not empty."""

from __future__ import annotations

from devicemanager import objects
from tests.helpers import own_defaults


def test_defaults_are_these_or_empty() -> None:
    assert own_defaults(objects) == {
        "NodeSystemInfo.operating_system": "linux",
        "NodeSystemInfo.architecture": "amd64",
        "NodeSystemInfo.os_image": "devicemanager",
        "NodeSystemInfo.container_runtime_version": "containerd://2.0.0+devicemanager",
    }

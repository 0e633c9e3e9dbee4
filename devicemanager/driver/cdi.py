"""CDI files: the settings of prepared devices, for the container runtime."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from devicemanager.driver.values import PreparedDevice
from devicemanager.plugin.values import DeviceSpec, Mount

__all__ = ["CdiFiles", "container_edits"]


class CdiFiles:
    """Paths and contents of a driver's CDI files: one file for each prepared claim."""

    def __init__(self, directory: Path, driver: str) -> None:
        self._directory = directory
        self.kind = f"k8s.{driver}/claim"
        """CDI kind of all devices in the files, such as ``k8s.gpu.example.com/claim``."""
        self._prefix = f"k8s.{driver}-claim"

    def path(self, uid: str) -> Path:
        """Return the path of a claim's file."""
        return self._directory / f"{self._prefix}_{uid}.json"

    def id(self, name: str) -> str:
        """Return the CDI ID of a device in these files."""
        return f"{self.kind}={name}"

    def contents(self, uid: str, devices: Mapping[str, Mapping[str, Any]]) -> dict[Path, str]:
        """Return a dict from the path of a claim's CDI file to its JSON text. If no device has
        edits, the claim needs no file and the dict is empty.

        ``devices`` maps each device name to the device's ``containerEdits`` of CDI. Devices
        without edits are omitted, because runtimes reject them.
        """
        edits = {name: dict(each) for name, each in devices.items() if each}
        if not edits:
            return {}
        content = {
            "cdiVersion": _version(edits.values()),
            "kind": self.kind,
            "devices": [{"name": name, "containerEdits": each} for name, each in edits.items()],
        }
        return {self.path(uid): json.dumps(content, indent=2)}

    def remove(self, uid: str) -> None:
        """Remove the file of a claim; do nothing if it does not exist. Raises OSError if the file
        cannot be removed."""
        self.path(uid).unlink(missing_ok=True)


# Version of the CDI specification that introduced each field of containerEdits.
_SINCE = {"intelRdt": "0.7.0", "additionalGids": "0.7.0", "netDevices": "1.1.0"}
_HOST_PATH_SINCE = "0.5.0"
_OLDEST = "0.3.0"


def _version(edits: Any) -> str:
    """Return the oldest CDI version that has all fields in ``edits``.

    Old runtimes reject newer versions.
    """
    found = [_OLDEST]
    for each in edits:
        found += [_SINCE[key] for key in each if key in _SINCE]
        if any("hostPath" in node for node in each.get("deviceNodes", ())):
            found.append(_HOST_PATH_SINCE)
    # As texts, these versions sort correctly because each part has only one digit.
    return max(found)


def container_edits(prepared: PreparedDevice) -> dict[str, Any]:
    """Return the CDI ``containerEdits`` of a prepared device; empty if it needs no settings."""
    settings = prepared.settings
    made: dict[str, list[Any]] = {
        "env": [f"{name}={value}" for name, value in settings.envs.items()],
        "deviceNodes": [_device_node(each) for each in settings.devices],
        "mounts": [_mount(each) for each in settings.mounts],
    }
    for key, values in prepared.edits.items():
        # Lists extend the lists of the settings. Other fields, such as the object ``intelRdt``, can
        # exist only once.
        made[key] = [*made.get(key, ()), *values] if isinstance(values, list) else values
    return {key: values for key, values in made.items() if values}


def _device_node(device: DeviceSpec) -> dict[str, str]:
    node = {"path": device.container_path, "permissions": device.permissions}
    same = device.host_path == device.container_path
    # Without ``hostPath``, the runtime uses ``path``. The field would require CDI version 0.5.0.
    return node if same else {**node, "hostPath": device.host_path}


def _mount(mount: Mount) -> dict[str, Any]:
    return {
        "hostPath": mount.host_path,
        "containerPath": mount.container_path,
        "options": ["rbind", "ro" if mount.read_only else "rw"],
    }

"""The CDI files of a simulated driver: one for each prepared claim."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

_VERSION = "0.3.0"
"""The oldest CDI version that has all fields of these files."""


class CdiFiles:
    """The files of one driver in a CDI directory."""

    def __init__(self, directory: Path, driver: str) -> None:
        self._directory = directory
        self._kind = f"k8s.{driver}/claim"
        self._prefix = f"k8s.{driver}-claim"

    def path(self, uid: str) -> Path:
        """Return the path of a claim's file."""
        return self._directory / f"{self._prefix}_{uid}.json"

    def write(self, uid: str, devices: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """Write the file of a claim; return the CDI names of its devices.

        ``devices`` has the name in the file and the device of each. Raises OSError.
        """
        content = {
            "cdiVersion": _VERSION,
            "kind": self._kind,
            "devices": [
                {
                    "name": name,
                    "containerEdits": {"env": [f"DRA_DEVICE_{_variable(device)}={device}"]},
                }
                for name, device in devices
            ],
        }
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self.path(uid)
        # Renamed into place, so that a runtime never reads half a file.
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_text(json.dumps(content), encoding="utf-8")
        temporary.replace(path)
        return tuple(f"{self._kind}={name}" for name, _ in devices)

    def remove(self, uid: str) -> None:
        """Remove the file of a claim; do nothing if it does not exist."""
        self.path(uid).unlink(missing_ok=True)


def _variable(device: str) -> str:
    return "".join(char if char.isalnum() else "_" for char in device).upper()

"""Atomic writes, and the CDI files of claims."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["CdiFiles", "write_atomically"]


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the contents of a file: readers see either the old or the new contents.

    Create missing directories. The data is flushed, so a power failure leaves no damaged file.
    Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Container runtimes read only *.json and *.yaml in a CDI directory.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class CdiFiles:
    """The files of one driver in a CDI directory: one for each prepared claim."""

    def __init__(self, directory: Path, driver: str) -> None:
        self._directory = directory
        self.kind = f"k8s.{driver}/claim"
        """CDI kind of all devices."""
        self._prefix = f"k8s.{driver}-claim"

    def path(self, uid: str) -> Path:
        """Return the path of a claim's file."""
        return self._directory / f"{self._prefix}_{uid}.json"

    def id(self, name: str) -> str:
        """Return the CDI id of a device of these files."""
        return f"{self.kind}={name}"

    def write(self, uid: str, devices: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the file of a claim: name of each device → ``containerEdits`` as in CDI.

        Devices without edits are left out, because runtimes reject them; without devices there is
        no file. Raises OSError.
        """
        edits = {name: dict(each) for name, each in devices.items() if each}
        if not edits:
            self.remove(uid)
            return
        content = {
            "cdiVersion": _version(edits.values()),
            "kind": self.kind,
            "devices": [{"name": name, "containerEdits": each} for name, each in edits.items()],
        }
        write_atomically(self.path(uid), json.dumps(content, indent=2).encode())

    def remove(self, uid: str) -> None:
        """Remove the file of a claim; do nothing if it does not exist. Raises OSError."""
        self.path(uid).unlink(missing_ok=True)


# The version of the CDI specification that added each field of containerEdits.
_SINCE = {"intelRdt": "0.7.0", "additionalGids": "0.7.0", "netDevices": "1.1.0"}
_HOST_PATH_SINCE = "0.5.0"
_OLDEST = "0.3.0"


def _version(edits: Any) -> str:
    """Return the oldest CDI version that has all fields, because old runtimes reject newer ones."""
    found = [_OLDEST]
    for each in edits:
        found += [_SINCE[key] for key in each if key in _SINCE]
        if any("hostPath" in node for node in each.get("deviceNodes", ())):
            found.append(_HOST_PATH_SINCE)
    return max(found)

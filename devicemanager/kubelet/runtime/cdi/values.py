"""Values of a CDI specification, and the names that refer to them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from devicemanager.core.api.cdi import split_name
from devicemanager.core.errors import RequestError

__all__ = [
    "CdiDeviceNode",
    "CdiError",
    "CdiHook",
    "CdiMount",
    "CdiNetDevice",
    "CdiSpec",
    "CdiSpecError",
    "ContainerEdits",
    "UnresolvedCdiDevices",
    "parse_name",
]


class CdiError(RequestError):
    """A CDI name or specification cannot be used."""


class CdiSpecError(CdiError):
    """A specification file is invalid. The text names the file and the place in it."""


class UnresolvedCdiDevices(CdiError):
    """Names that no specification file defines. ``names`` has all of them."""

    def __init__(self, names: tuple[str, ...], where: str) -> None:
        self.names = names
        super().__init__(f"unresolvable CDI devices {', '.join(names)}: {where}")


@attrs.frozen(kw_only=True)
class CdiDeviceNode:
    """A device node to create; fields that are None are read from the host node."""

    path: str
    host_path: str
    type: str | None = None
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = None
    permissions: str = "rwm"
    uid: int | None = None
    gid: int | None = None


@attrs.frozen(kw_only=True)
class CdiMount:
    """A mount to create, with OCI mount options."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = "bind"


@attrs.frozen
class CdiHook:
    """A program that the runtime runs at ``name``, one of OCI's hook points."""

    name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


@attrs.frozen
class CdiNetDevice:
    """A host network interface to move into the container as ``name``."""

    host_interface_name: str
    name: str


@attrs.frozen
class ContainerEdits:
    """Changes to a container's OCI configuration. ``intel_rdt`` has OCI's own keys."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[CdiDeviceNode, ...] = ()
    mounts: tuple[CdiMount, ...] = ()
    hooks: tuple[CdiHook, ...] = ()
    net_devices: tuple[CdiNetDevice, ...] = ()
    additional_gids: tuple[int, ...] = ()
    intel_rdt: Mapping[str, Any] | None = None


@attrs.frozen
class CdiSpec:
    """One file: edits by device name, and edits for every user of any of its devices."""

    path: Path
    kind: str
    version: str
    devices: Mapping[str, ContainerEdits]
    # Shared default: the class is frozen.
    edits: ContainerEdits = ContainerEdits()


def parse_name(name: str) -> tuple[str, str]:
    """Split ``vendor.com/class=device`` into kind and device. Raises ``CdiError``."""
    parts = split_name(name)
    if parts is None:
        raise CdiError(f"invalid CDI name {name!r}: expected vendor.com/class=device")
    return parts

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
    """Error of a CDI name or specification that cannot be used."""


class CdiSpecError(CdiError):
    """Error of an invalid specification file; its text names the file and the invalid field."""


class UnresolvedCdiDevices(CdiError):
    """Error of CDI device names that no specification file defines; ``names`` has these names."""

    def __init__(self, names: tuple[str, ...], where: str) -> None:
        self.names = names
        super().__init__(f"unresolvable CDI devices {', '.join(names)}: {where}")


@attrs.frozen(kw_only=True)
class CdiDeviceNode:
    """A device node to create in the container.

    If ``type`` or ``major`` is None, the type and both device numbers come from the device node
    ``host_path`` on the host. A FIFO (type ``p``) has no device numbers. If ``file_mode``, ``uid``
    or ``gid`` is None, this field is not set in the OCI configuration.
    """

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
    """A mount to create in the container, with OCI mount options."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = "bind"


@attrs.frozen
class CdiHook:
    """A program that the container runtime runs; ``name`` is the OCI hook, such as ``prestart``."""

    name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


@attrs.frozen
class CdiNetDevice:
    """A network interface of the host. It is moved into the container and renamed to ``name``."""

    host_interface_name: str
    name: str


@attrs.frozen
class ContainerEdits:
    """Changes to a container's OCI configuration. The keys of ``intel_rdt`` are those of OCI."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[CdiDeviceNode, ...] = ()
    mounts: tuple[CdiMount, ...] = ()
    hooks: tuple[CdiHook, ...] = ()
    net_devices: tuple[CdiNetDevice, ...] = ()
    additional_gids: tuple[int, ...] = ()
    intel_rdt: Mapping[str, Any] | None = None


@attrs.frozen
class CdiSpec:
    """A specification file. ``devices`` has the edits by device name; ``edits`` applies to every
    container that uses a device of the file."""

    path: Path
    kind: str
    version: str
    devices: Mapping[str, ContainerEdits]
    # Shared default: the class is frozen.
    edits: ContainerEdits = ContainerEdits()


def parse_name(name: str) -> tuple[str, str]:
    """Split ``vendor.com/class=device`` into the kind (``vendor.com/class``) and the device.

    Raises ``CdiError`` for any other form.
    """
    parts = split_name(name)
    if parts is None:
        raise CdiError(f"invalid CDI name {name!r}: expected vendor.com/class=device")
    return parts

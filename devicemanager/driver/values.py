"""Arguments and results of the methods that the author of a DRA driver writes.

Most values that the API server would reject raise a ValueError that names the value. So authors see
the error where they create the value. A malformed quantity is an error only when slices are
published.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import attrs

from devicemanager.plugin.validators import check_text, several
from devicemanager.plugin.values import ContainerSettings

__all__ = [
    "AllocatedDevice",
    "Attribute",
    "Claim",
    "Device",
    "DeviceHealth",
    "DriverResources",
    "Health",
    "Pool",
    "PreparedDevice",
    "Taint",
    "Version",
]

# Patterns and limits of the API server's validation of ResourceSlices.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SEMVER = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
_MAX_TEXT = 64
_MAX_ATTRIBUTES = 32


@attrs.frozen
class Version:
    """Attribute value that compares as a semantic version, such as ``2.1.0``."""

    text: str

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.text, str) or not _SEMVER.fullmatch(self.text):
            raise ValueError(f"invalid version {self.text!r}: use a version such as 2.1.0")


Attribute: TypeAlias = str | int | bool | Version
"""Value of a device's attribute: a string, an integer, a boolean or a semantic version."""

Quantity: TypeAlias = str | int
"""Quantity as in Kubernetes, such as ``40Gi`` or 8."""


def _device_name(_instance: object, _attribute: object, name: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"invalid device name {name!r}: use 1 to 63 lower case letters, digits and '-'"
        )


def _check_attributes(device: Device, _attribute: object, values: Mapping[str, Attribute]) -> None:
    # The API server has one limit for attributes and capacities together.
    if len(values) + len(device.capacity) > _MAX_ATTRIBUTES:
        raise ValueError(
            f"device {device.name}: too many attributes ({len(values)}) and capacities "
            f"({len(device.capacity)}): use at most {_MAX_ATTRIBUTES} together"
        )
    for key, value in values.items():
        # This includes bool, which is a subclass of int in Python.
        if not isinstance(value, str | int | Version):
            raise ValueError(
                f"device {device.name}: invalid attribute {key}={value!r}: use a string, an "
                "integer, a bool or a Version"
            )
        if isinstance(value, str):
            check_text(f"attribute {key} of device {device.name}", value)
            if len(value) > _MAX_TEXT:
                raise ValueError(
                    f"device {device.name}: attribute {key} has {len(value)} characters: use at "
                    f"most {_MAX_TEXT}"
                )


@attrs.frozen(kw_only=True)
class Taint:
    """Taint of a device. A claim must tolerate it to get the device."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "NoExecute"] = "NoSchedule"


def _taints(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    return several("taints", taints)


@attrs.frozen
class Device:
    """Device that a driver publishes. Its ``name`` must stay the same after restarts.

    ``attributes``: names without a domain are in the driver's domain. ``capacity``: quantities such
    as ``{"memory": "40Gi"}``. ``consumes``: amounts that the device takes from the pool's shared
    counters, in the form ``{"<counter set>": {"<counter>": "40Gi"}}``. ``fields``: further fields
    of the API's Device as in JSON, such as ``allowMultipleAllocations``.
    """

    name: str = attrs.field(validator=_device_name)
    # Before `attributes`, whose validator counts both.
    capacity: Mapping[str, Quantity] = attrs.field(factory=dict, kw_only=True)
    attributes: Mapping[str, Attribute] = attrs.field(
        factory=dict, validator=_check_attributes, kw_only=True
    )
    taints: tuple[Taint, ...] = attrs.field(default=(), converter=_taints, kw_only=True)
    consumes: Mapping[str, Mapping[str, Quantity]] = attrs.field(factory=dict, kw_only=True)
    fields: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True)


def _devices(devices: Iterable[Device | str]) -> tuple[Device, ...]:
    found = tuple(
        Device(device) if isinstance(device, str) else device
        for device in several("devices", devices)
    )
    # The API server checks only single slices, but a pool can have several of them.
    names = [device.name for device in found]
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise ValueError(f"device {twice} is in the pool twice: use unique names")
    return found


@attrs.frozen
class Pool:
    """Pool: devices that a driver publishes together. In ``devices``, a name stands for a device
    without properties.

    ``counters``: quantities of the shared counters for partitionable devices, in the form
    ``{"<counter set>": {"<counter>": "40Gi"}}``.
    """

    devices: tuple[Device, ...] = attrs.field(default=(), converter=_devices)
    counters: Mapping[str, Mapping[str, Quantity]] = attrs.field(factory=dict, kw_only=True)


@attrs.frozen
class DriverResources:
    """All pools that a driver publishes for its node, by name."""

    pools: Mapping[str, Pool] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class AllocatedDevice:
    """Device that is allocated to a request of a claim."""

    request: str
    """Name of the request; for a prioritized list, ``<request>/<subrequest>``."""
    pool: str
    device: str
    share_id: str = ""
    """ID of the share, if several claims can share the device; else empty."""
    admin_access: bool = False
    """True if the claim may use a device that is allocated to another claim."""
    consumed_capacity: Mapping[str, str] = attrs.field(factory=dict)
    parameters: tuple[Mapping[str, Any], ...] = ()
    """Opaque parameters for this driver, first from the DeviceClass, then from the claim. Later
    parameters override earlier ones."""

    def prepared(
        self,
        settings: ContainerSettings | None = None,
        *,
        edits: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Attribute] | None = None,
        **more: Any,
    ) -> PreparedDevice:
        """Return this device with the settings that its containers need.

        ``more`` are fields of :class:`ContainerSettings`, such as ``devices=["/dev/gpu0"]``.
        :class:`PreparedDevice` describes the other arguments.
        """
        settings = settings or ContainerSettings(**more)
        return PreparedDevice(self, settings, edits=edits or {}, metadata=metadata)


@attrs.frozen(kw_only=True)
class Claim:
    """Part of a ResourceClaim for one driver: the claim's name, and the driver's devices that are
    allocated to the claim."""

    namespace: str
    name: str
    uid: str
    devices: tuple[AllocatedDevice, ...]
    pod_claim_name: str = ""
    """Name of the claim in the pod, if the claim was created from a template; else empty."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def _only_cdi(_instance: object, _attribute: object, settings: ContainerSettings) -> None:
    # A DRA driver can pass settings to the container runtime only in CDI files.
    if settings.annotations or settings.typed_devices:
        raise ValueError(
            "invalid settings of a prepared device: CDI supports no annotations and no "
            "typed_devices: use envs, mounts, devices and cdi_devices"
        )


@attrs.frozen
class PreparedDevice:
    """Device that is ready for containers, with the settings that the containers need."""

    device: AllocatedDevice
    settings: ContainerSettings = attrs.field(factory=ContainerSettings, validator=_only_cdi)
    edits: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True)
    """Fields of ``containerEdits`` in the CDI file, such as ``hooks``, in addition to
    ``settings``."""
    metadata: Mapping[str, Attribute] | None = attrs.field(default=None, kw_only=True)
    """Attributes for the device's metadata file. If None, the file has the attributes that the
    driver has published."""


Health = Literal["Healthy", "Unhealthy", "Unknown"]


def _check_health(_instance: object, _attribute: object, health: str) -> None:
    if health not in get_args(Health):
        raise ValueError(f"invalid health {health!r}: use one of {', '.join(get_args(Health))}")


@attrs.frozen
class DeviceHealth:
    """Health of a device. It becomes Unknown ``timeout`` seconds after the last report.

    With a timeout of 0 or less, the kubelet uses its default of 30 seconds.
    """

    device: str
    health: Health = attrs.field(default="Healthy", validator=_check_health)
    message: str = ""
    """Reason, as text for users; a kubelet cuts it to 1024 bytes."""
    pool: str = attrs.field(default="", kw_only=True)
    """Name of the device's pool. If empty, the pool is the default pool, which has the node's
    name."""
    timeout: int = attrs.field(default=30, kw_only=True)

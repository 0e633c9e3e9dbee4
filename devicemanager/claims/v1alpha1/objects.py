"""The objects of ``devmgmtproto.k8s.io/v1alpha1`` as immutable values.

Field names are those of the wire in Python's spelling. Amounts are quantities in whatever
unit the resource counts in (bytes of memory, CPUs, pieces).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from devicemanager.claims.attributes import AttributeType, AttributeValue
from devicemanager.core.quantity import NANOS, Quantity

API_VERSION = "devmgmtproto.k8s.io/v1alpha1"
COUNT = "count"
"""The key of ``requests`` and ``limits`` that means devices; every other key is a resource."""

ONE = Quantity(NANOS)
NOTHING = Quantity(0)

Quantities = Mapping[str, Quantity]


@attrs.frozen
class ObjectMeta:
    name: str = ""
    namespace: str = ""
    uid: str = ""
    other: Mapping[str, Any] = attrs.field(factory=dict)
    """Labels, annotations and the rest, as they came."""


@attrs.frozen
class ConfigReference:
    """An object with settings for a driver. In a claim the namespace is the claim's."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""


@attrs.frozen
class ConfigObject:
    """An object that a reference can name; its content is the driver's business."""

    api_version: str
    kind: str
    metadata: ObjectMeta
    content: Mapping[str, Any] = attrs.field(factory=dict)
    """All of the object as it came."""

    @property
    def reference(self) -> ConfigReference:
        meta = self.metadata
        return ConfigReference(self.api_version, self.kind, meta.name, meta.namespace)


@attrs.frozen
class DeviceClass:
    """What kind of device a driver offers, and which of its devices belong. No namespace."""

    metadata: ObjectMeta
    driver: str = ""
    device_type: str = ""
    constraints: str = ""
    """CEL about ``device``; empty is true."""
    admin_access: bool = False
    configs: tuple[ConfigReference, ...] = ()

    @property
    def name(self) -> str:
        return self.metadata.name


@attrs.frozen
class Attribute:
    """A name and exactly one value."""

    name: str = ""
    string_value: str | None = None
    int_value: int | None = None
    quantity_value: Quantity | None = None
    sem_ver_value: str | None = None

    def values(self) -> tuple[AttributeValue, ...]:
        """All values that are set; a valid attribute has one."""
        amount = None if self.quantity_value is None else self.quantity_value.nanos
        found = (
            (AttributeType.STRING, self.string_value),
            (AttributeType.INT, self.int_value),
            (AttributeType.QUANTITY, amount),
            (AttributeType.SEMVER, self.sem_ver_value),
        )
        return tuple([AttributeValue(type_, value) for type_, value in found if value is not None])

    def equals(self, other: Attribute) -> bool:
        """``EqualValue``: the first type that both have decides, and without one they differ."""
        theirs = {value.type: value for value in other.values()}
        for mine in self.values():
            if mine.type in theirs:
                return mine == theirs[mine.type]
        return False


@attrs.frozen
class ResourceCapacity:
    """A resource that is given out in blocks."""

    name: str = ""
    capacity: Quantity = NOTHING
    block_size: Quantity = ONE


@attrs.frozen
class Device:
    name: str = ""
    attributes: tuple[Attribute, ...] = ()
    requests: Quantities = attrs.field(factory=dict)
    """What the device takes of its pool's resources while somebody holds it."""
    resources: tuple[ResourceCapacity, ...] = ()
    """What claims may ask of the device itself, and share."""


@attrs.frozen
class DevicePool:
    """What a driver publishes. No namespace; the name is unique in the cluster."""

    metadata: ObjectMeta
    driver: str = ""
    node_name: str = ""
    """Empty: attached to the network, usable on every node."""
    attributes: tuple[Attribute, ...] = ()
    """Of every device that has none of the same name."""
    resources: tuple[ResourceCapacity, ...] = ()
    """What the devices in use take from together."""
    devices: tuple[Device, ...] = ()
    available_devices: int | None = None
    """The driver's own count in its status; shown, never used."""

    @property
    def name(self) -> str:
        return self.metadata.name


@attrs.frozen
class ClaimDetail:
    """One way to choose devices."""

    device_type: str = ""
    device_class: str = ""
    constraints: str = ""
    requests: Quantities = attrs.field(factory=dict)
    """At least this much over all chosen devices; empty is one device."""
    limits: Quantities = attrs.field(factory=dict)
    match_attributes: tuple[str, ...] = ()
    configs: tuple[ConfigReference, ...] = ()


@attrs.frozen
class ClaimInstance:
    """Either ``detail`` or ``one_of``, in order of preference."""

    detail: ClaimDetail | None = None
    one_of: tuple[ClaimDetail, ...] = ()
    name: str = ""
    """Accepted, and without a meaning."""

    def details(self) -> tuple[ClaimDetail, ...]:
        """All alternatives, whichever way they are written."""
        return self.one_of if self.detail is None else (self.detail,)


@attrs.frozen
class ResourceAllocation:
    name: str
    allocation: Quantity


@attrs.frozen
class DeviceAllocation:
    device_pool_name: str
    device_name: str
    allocations: tuple[ResourceAllocation, ...] = ()
    """What the claim holds of the device's resources; none if it holds the device whole."""


@attrs.frozen
class DeviceStatus:
    """What a driver says about one device of a claim."""

    device_pool_name: str = ""
    device_name: str = ""
    conditions: tuple[Mapping[str, Any], ...] = ()
    device_ip: str = ""
    device_ips: tuple[str, ...] = ()
    device_info: tuple[Any, ...] = ()
    allocations: tuple[ResourceAllocation, ...] = ()


@attrs.frozen
class ClaimStatus:
    allocations: tuple[DeviceAllocation, ...] = ()
    class_configs: tuple[ConfigObject, ...] = ()
    claim_configs: tuple[ConfigObject, ...] = ()
    device_statuses: tuple[DeviceStatus, ...] = ()
    pod_names: tuple[str, ...] = ()
    """Sorted; the pods that use the claim."""


@attrs.frozen
class DeviceClaim:
    metadata: ObjectMeta
    claims: tuple[ClaimInstance, ...] = ()
    match_attributes: tuple[str, ...] = ()
    status: ClaimStatus = ClaimStatus()

    @property
    def id(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def same_spec(self, other: DeviceClaim) -> bool:
        return (self.claims, self.match_attributes) == (other.claims, other.match_attributes)


Object = DeviceClass | DeviceClaim | DevicePool | ConfigObject

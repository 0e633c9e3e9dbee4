"""The objects of ``devmgmtproto.k8s.io/v1alpha1`` as immutable values."""

# Fields have the names of the API in Python's spelling. Amounts are quantities in the unit of
# their resource, such as bytes, CPUs or pieces.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from devicemanager.claims.attributes import AttributeType, AttributeValue
from devicemanager.core.quantity import NANOS, Quantity

API_VERSION = "devmgmtproto.k8s.io/v1alpha1"
COUNT = "count"
"""The key of ``requests`` and ``limits`` for the number of devices; all others are resources."""

ONE = Quantity(NANOS)
NOTHING = Quantity(0)

Quantities = Mapping[str, Quantity]


@attrs.frozen
class ObjectMeta:
    """``metadata`` of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    other: Mapping[str, Any] = attrs.field(factory=dict)
    """Labels, annotations and all other fields, unchanged."""


@attrs.frozen
class ConfigReference:
    """Reference to an object with driver settings. A claim's references have its namespace."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""


@attrs.frozen
class ConfigObject:
    """Object of any other API with settings for a driver, which interprets them."""

    api_version: str
    kind: str
    metadata: ObjectMeta
    content: Mapping[str, Any] = attrs.field(factory=dict)
    """The whole object, unchanged."""

    @property
    def reference(self) -> ConfigReference:
        """The reference that names this object."""
        meta = self.metadata
        return ConfigReference(self.api_version, self.kind, meta.name, meta.namespace)


@attrs.frozen
class DeviceClass:
    """A device type of a driver, and the devices that belong to it. Cluster-scoped."""

    metadata: ObjectMeta
    driver: str = ""
    device_type: str = ""
    constraints: str = ""
    """CEL about ``device``; empty is true."""
    admin_access: bool = False
    configs: tuple[ConfigReference, ...] = ()

    @property
    def name(self) -> str:
        """``metadata.name``."""
        return self.metadata.name


@attrs.frozen
class Attribute:
    """An attribute of a device; a valid one has exactly one value."""

    name: str = ""
    string_value: str | None = None
    int_value: int | None = None
    quantity_value: Quantity | None = None
    sem_ver_value: str | None = None

    def values(self) -> tuple[AttributeValue, ...]:
        """Return all values that are set."""
        amount = None if self.quantity_value is None else self.quantity_value.nanos
        found = (
            (AttributeType.STRING, self.string_value),
            (AttributeType.INT, self.int_value),
            (AttributeType.QUANTITY, amount),
            (AttributeType.SEMVER, self.sem_ver_value),
        )
        return tuple([AttributeValue(type_, value) for type_, value in found if value is not None])

    def equals(self, other: Attribute) -> bool:
        """True if the values are equal (``EqualValue``).

        The first type that both have decides; without such a type they differ.
        """
        others = {value.type: value for value in other.values()}
        for own in self.values():
            if own.type in others:
                return own == others[own.type]
        return False


@attrs.frozen
class ResourceCapacity:
    """A resource that is allocated in whole blocks."""

    name: str = ""
    capacity: Quantity = NOTHING
    block_size: Quantity = ONE


@attrs.frozen
class Device:
    """A device of a pool."""

    name: str = ""
    attributes: tuple[Attribute, ...] = ()
    requests: Quantities = attrs.field(factory=dict)
    """What the device consumes of its pool's resources while it is allocated."""
    resources: tuple[ResourceCapacity, ...] = ()
    """Resources of the device itself, which claims can request and share."""


@attrs.frozen
class DevicePool:
    """Devices that a driver publishes. Cluster-scoped."""

    metadata: ObjectMeta
    driver: str = ""
    node_name: str = ""
    """Empty for network-attached devices, which every node can use."""
    attributes: tuple[Attribute, ...] = ()
    """Attributes of every device that has none of the same name itself."""
    resources: tuple[ResourceCapacity, ...] = ()
    """Resources that allocated devices consume."""
    devices: tuple[Device, ...] = ()
    available_devices: int | None = None
    """The number that the driver reports in its status; shown, never used."""

    @property
    def name(self) -> str:
        """``metadata.name``."""
        return self.metadata.name


@attrs.frozen
class ClaimDetail:
    """One way to choose devices."""

    device_type: str = ""
    device_class: str = ""
    constraints: str = ""
    requests: Quantities = attrs.field(factory=dict)
    """The least amounts of all chosen devices together; empty is one device."""
    limits: Quantities = attrs.field(factory=dict)
    match_attributes: tuple[str, ...] = ()
    configs: tuple[ConfigReference, ...] = ()


@attrs.frozen
class ClaimInstance:
    """A request of a claim: either ``detail``, or ``one_of`` in order of preference."""

    detail: ClaimDetail | None = None
    one_of: tuple[ClaimDetail, ...] = ()
    name: str = ""
    """Accepted and ignored."""

    def details(self) -> tuple[ClaimDetail, ...]:
        """Return the alternatives of either form."""
        return self.one_of if self.detail is None else (self.detail,)


@attrs.frozen
class ResourceAllocation:
    """An allocated amount of a device's resource."""

    name: str
    allocation: Quantity


@attrs.frozen
class DeviceAllocation:
    """An allocated device in the status of a claim."""

    device_pool_name: str
    device_name: str
    allocations: tuple[ResourceAllocation, ...] = ()
    """The allocated amounts of a shared device; empty if the device is allocated whole."""


@attrs.frozen
class DeviceStatus:
    """What a driver reports about one device of a claim."""

    device_pool_name: str = ""
    device_name: str = ""
    conditions: tuple[Mapping[str, Any], ...] = ()
    device_ip: str = ""
    device_ips: tuple[str, ...] = ()
    device_info: tuple[Any, ...] = ()
    allocations: tuple[ResourceAllocation, ...] = ()


@attrs.frozen
class ClaimStatus:
    """``status`` of a claim."""

    allocations: tuple[DeviceAllocation, ...] = ()
    class_configs: tuple[ConfigObject, ...] = ()
    claim_configs: tuple[ConfigObject, ...] = ()
    device_statuses: tuple[DeviceStatus, ...] = ()
    pod_names: tuple[str, ...] = ()
    """The pods that use the claim, sorted."""


@attrs.frozen
class DeviceClaim:
    """A request for devices, with their allocation in its status."""

    metadata: ObjectMeta
    claims: tuple[ClaimInstance, ...] = ()
    match_attributes: tuple[str, ...] = ()
    status: ClaimStatus = ClaimStatus()

    @property
    def id(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def same_spec(self, other: DeviceClaim) -> bool:
        """True if both request the same."""
        return (self.claims, self.match_attributes) == (other.claims, other.match_attributes)


Object = DeviceClass | DeviceClaim | DevicePool | ConfigObject
"""An object of structured claims."""

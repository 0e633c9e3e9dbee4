"""The objects of ``devmgmtproto.k8s.io/v1alpha1`` as immutable values."""

# Fields have the names of the API in snake case. Amounts are quantities in the unit of their
# resource, such as bytes, CPUs or pieces.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from devicemanager.claims.attributes import AttributeType, AttributeValue
from devicemanager.core.quantity import NANOS, Quantity

API_VERSION = "devmgmtproto.k8s.io/v1alpha1"
COUNT = "count"
"""Key of ``requests`` and ``limits`` for the number of devices; other keys name resources."""

ONE = Quantity(NANOS)
NOTHING = Quantity(0)

Quantities = Mapping[str, Quantity]


@attrs.frozen
class ObjectMeta:
    """Metadata of an object: name, namespace, UID and other fields."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    other: Mapping[str, Any] = attrs.field(factory=dict)
    """Labels, annotations and all other fields, unchanged."""


@attrs.frozen
class ConfigReference:
    """Reference to an object with driver settings.

    A reference in a claim has no namespace: it names an object in the claim's namespace.
    """

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""


@attrs.frozen
class ConfigObject:
    """Settings for a driver: an object of any API other than this one."""

    api_version: str
    kind: str
    metadata: ObjectMeta
    content: Mapping[str, Any] = attrs.field(factory=dict)
    """The whole object, unchanged."""

    @property
    def reference(self) -> ConfigReference:
        """API version, kind, name and namespace of this object, as a ``ConfigReference``."""
        meta = self.metadata
        return ConfigReference(self.api_version, self.kind, meta.name, meta.namespace)


@attrs.frozen
class DeviceClass:
    """Class of a driver's devices that match CEL constraints. Cluster-scoped."""

    metadata: ObjectMeta
    driver: str = ""
    device_type: str = ""
    constraints: str = ""
    """CEL expression about the variable ``device``; an empty expression matches every device."""
    admin_access: bool = False
    configs: tuple[ConfigReference, ...] = ()

    @property
    def name(self) -> str:
        """Name of the class (``metadata.name``)."""
        return self.metadata.name


@attrs.frozen
class Attribute:
    """Attribute of a device or pool. A valid attribute has exactly one value."""

    name: str = ""
    string_value: str | None = None
    int_value: int | None = None
    quantity_value: Quantity | None = None
    sem_ver_value: str | None = None

    def values(self) -> tuple[AttributeValue, ...]:
        """Return all values that are set; a valid attribute has exactly one."""
        # Quantities are compared by value: ``1Gi`` and ``1024Mi`` are equal.
        amount = None if self.quantity_value is None else self.quantity_value.nanos
        found = (
            (AttributeType.STRING, self.string_value),
            (AttributeType.INT, self.int_value),
            (AttributeType.QUANTITY, amount),
            (AttributeType.SEMVER, self.sem_ver_value),
        )
        return tuple([AttributeValue(type_, value) for type_, value in found if value is not None])

    def equals(self, other: Attribute) -> bool:
        """True if this attribute and ``other`` have equal values (``EqualValue`` of the API).

        Compare values of the first type that both attributes have. Attributes without a common type
        differ.
        """
        others = {value.type: value for value in other.values()}
        for own in self.values():
            if own.type in others:
                return own == others[own.type]
        return False


@attrs.frozen
class ResourceCapacity:
    """Resource of a pool or device. Its amounts are allocated in whole blocks of ``block_size``."""

    name: str = ""
    capacity: Quantity = NOTHING
    block_size: Quantity = ONE


@attrs.frozen
class Device:
    """One device in a pool, with its attributes and resources."""

    name: str = ""
    attributes: tuple[Attribute, ...] = ()
    requests: Quantities = attrs.field(factory=dict)
    """Amounts of the pool's resources that the device consumes while it is allocated, by resource
    name."""
    resources: tuple[ResourceCapacity, ...] = ()
    """Resources that claims can request in amounts, such as bandwidth. Several claims can then
    share the device."""


@attrs.frozen
class DevicePool:
    """Pool of devices that a driver publishes. Cluster-scoped."""

    metadata: ObjectMeta
    driver: str = ""
    node_name: str = ""
    """Node of the devices; empty for network-attached devices, which every node can use."""
    attributes: tuple[Attribute, ...] = ()
    """Attributes of all devices; a device can override an attribute by name."""
    resources: tuple[ResourceCapacity, ...] = ()
    """Resources that the devices of the pool share, such as memory slices. An allocated device
    consumes amounts of these resources (``Device.requests``)."""
    devices: tuple[Device, ...] = ()
    available_devices: int | None = None
    """Number of available devices that the driver reports; not used for allocation."""

    @property
    def name(self) -> str:
        """Name of the pool (``metadata.name``)."""
        return self.metadata.name


@attrs.frozen
class ClaimDetail:
    """Requirements for the devices of a request, or of one of its alternatives."""

    device_type: str = ""
    device_class: str = ""
    constraints: str = ""
    requests: Quantities = attrs.field(factory=dict)
    """Minimum amounts that the devices must provide together, by resource. The value of the key
    ``COUNT`` is the minimum number of devices.

    An empty mapping requests one device. If the class has admin access, an empty mapping requests
    all devices of the class.
    """
    limits: Quantities = attrs.field(factory=dict)
    match_attributes: tuple[str, ...] = ()
    configs: tuple[ConfigReference, ...] = ()


@attrs.frozen
class ClaimInstance:
    """Request of a claim. It has either ``detail`` or ``one_of``.

    ``one_of`` has alternatives in order of preference.
    """

    detail: ClaimDetail | None = None
    one_of: tuple[ClaimDetail, ...] = ()
    name: str = ""
    """Name of the request. It does not affect the allocation."""

    def details(self) -> tuple[ClaimDetail, ...]:
        """Return the alternatives of the request: ``one_of``, or only ``detail``."""
        return self.one_of if self.detail is None else (self.detail,)


@attrs.frozen
class ResourceAllocation:
    """Allocated amount of a device's resource."""

    name: str
    allocation: Quantity


@attrs.frozen
class DeviceAllocation:
    """Allocated device in the status of a claim."""

    device_pool_name: str
    device_name: str
    allocations: tuple[ResourceAllocation, ...] = ()
    """Allocated amount of each requested resource of a shared device; empty if the claim gets the
    whole device or admin access."""


@attrs.frozen
class DeviceStatus:
    """Status that a driver reports for one device of a claim."""

    device_pool_name: str = ""
    device_name: str = ""
    conditions: tuple[Mapping[str, Any], ...] = ()
    device_ip: str = ""
    device_ips: tuple[str, ...] = ()
    device_info: tuple[Any, ...] = ()
    allocations: tuple[ResourceAllocation, ...] = ()


@attrs.frozen
class ClaimStatus:
    """Status of a claim: its devices, configs, device statuses and pods."""

    allocations: tuple[DeviceAllocation, ...] = ()
    class_configs: tuple[ConfigObject, ...] = ()
    claim_configs: tuple[ConfigObject, ...] = ()
    device_statuses: tuple[DeviceStatus, ...] = ()
    pod_names: tuple[str, ...] = ()
    """Sorted names of the pods that use the claim."""


@attrs.frozen
class DeviceClaim:
    """Claim for devices, with the allocated devices in its status."""

    metadata: ObjectMeta
    claims: tuple[ClaimInstance, ...] = ()
    match_attributes: tuple[str, ...] = ()
    status: ClaimStatus = ClaimStatus()

    @property
    def id(self) -> str:
        """Identity of the claim: ``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def same_spec(self, other: DeviceClaim) -> bool:
        """True if this claim and ``other`` have equal requests and equal ``match_attributes``."""
        # Labels, annotations and status can change while the claim is allocated.
        return (self.claims, self.match_attributes) == (other.claims, other.match_attributes)


Object = DeviceClass | DeviceClaim | DevicePool | ConfigObject
"""Any object of structured claims: class, claim, pool or config."""

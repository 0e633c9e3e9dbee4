"""Structured claims: drivers publish devices, administrators define classes, users claim devices.

Theory of operation. The API is ``devmgmtproto.k8s.io/v1alpha1``, the predecessor of
``resource.k8s.io`` (dynamic resource allocation). A claim describes the devices that it needs:
their class, constraints in CEL, amounts, and attributes that must be equal.

In:  objects (pools, classes, claims, configs) from users, drivers and files; pods that name
     claims, from the kubelet.
Out: an allocation in the status of each claim; devices, CDI names and health for the kubelet
     and PodResources; explanations; events; the state file ``device_claims_state``.

Layers. Each layer imports only the layers listed above it:

* ``core``: the search for devices, and the ledger of allocations. Pure; imports no API types.
* ``cel``, ``attributes``: constraints and the values that they compare.
* ``v1alpha1``: objects of the API, validation, translation to and from ``core``.
* ``store``, ``allocator``, ``explanation``: objects with their allocations. No locks, no I/O.
* ``allocated_claims``, ``state_file``: claims with their pods, and the text of the state file.
* ``manager`` (for users), ``pod_claims`` (for the kubelet), ``persistence``, ``preparing``:
  locks, state file and drivers. ``lazy_claims`` loads these modules at first use.

Invariants:

* All claims of a pod are allocated together, or none.
* No device is allocated exclusively twice. No allocation exceeds the budget of a pool (shared
  counters) or the capacity of a device.
* An allocation is in the state file before the pod is admitted.
* Republishing a pool does not affect allocated claims.
* The same objects and the same calls give the same result.

Start reading with ``core`` (the search), or with ``pod_claims`` (what happens to the claims of a
pod).
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.claims.allocated_claims import ClaimView
    from devicemanager.claims.attributes import AttributeType, AttributeValue
    from devicemanager.claims.core.inventory import DeviceKey, PoolKey
    from devicemanager.claims.core.model import AccessMode, Allocation, Grant
    from devicemanager.claims.drivers import ClaimDriver, FakeDriver
    from devicemanager.claims.errors import (
        ClaimsError,
        ClaimsUnavailable,
        DoesNotFit,
        InvalidObject,
        TryAgain,
    )
    from devicemanager.claims.explanation import ExcludedDevices, Explanation, RequestExplanation
    from devicemanager.claims.files import ClaimSource
    from devicemanager.claims.manager import ClaimManager
    from devicemanager.claims.simulated import (
        NodeClaims,
        SimulatedHardware,
        publish_hardware,
        simulated_classes,
    )
    from devicemanager.claims.v1alpha1.objects import (
        Attribute,
        ClaimDetail,
        ClaimInstance,
        ClaimStatus,
        ConfigObject,
        ConfigReference,
        Device,
        DeviceAllocation,
        DeviceClaim,
        DeviceClass,
        DevicePool,
        DeviceStatus,
        Object,
        ObjectMeta,
        ResourceAllocation,
        ResourceCapacity,
    )
    from devicemanager.core.quantity import Quantity

__all__ = [
    "AccessMode",
    "Allocation",
    "Attribute",
    "AttributeType",
    "AttributeValue",
    "ClaimDetail",
    "ClaimDriver",
    "ClaimInstance",
    "ClaimManager",
    "ClaimSource",
    "ClaimStatus",
    "ClaimView",
    "ClaimsError",
    "ClaimsUnavailable",
    "ConfigObject",
    "ConfigReference",
    "Device",
    "DeviceAllocation",
    "DeviceClaim",
    "DeviceClass",
    "DeviceKey",
    "DevicePool",
    "DeviceStatus",
    "DoesNotFit",
    "ExcludedDevices",
    "Explanation",
    "FakeDriver",
    "Grant",
    "InvalidObject",
    "NodeClaims",
    "Object",
    "ObjectMeta",
    "PoolKey",
    "Quantity",
    "RequestExplanation",
    "ResourceAllocation",
    "ResourceCapacity",
    "SimulatedHardware",
    "TryAgain",
    "publish_hardware",
    "simulated_classes",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AccessMode": "core.model",
        "Allocation": "core.model",
        "Attribute": "v1alpha1.objects",
        "AttributeType": "attributes",
        "AttributeValue": "attributes",
        "ClaimDetail": "v1alpha1.objects",
        "ClaimDriver": "drivers",
        "ClaimInstance": "v1alpha1.objects",
        "ClaimManager": "manager",
        "ClaimSource": "files",
        "ClaimStatus": "v1alpha1.objects",
        "ClaimView": "allocated_claims",
        "ClaimsError": "errors",
        "ClaimsUnavailable": "errors",
        "ConfigObject": "v1alpha1.objects",
        "ConfigReference": "v1alpha1.objects",
        "Device": "v1alpha1.objects",
        "DeviceAllocation": "v1alpha1.objects",
        "DeviceClaim": "v1alpha1.objects",
        "DeviceClass": "v1alpha1.objects",
        "DeviceKey": "core.inventory",
        "DevicePool": "v1alpha1.objects",
        "DeviceStatus": "v1alpha1.objects",
        "DoesNotFit": "errors",
        "ExcludedDevices": "explanation",
        "Explanation": "explanation",
        "FakeDriver": "drivers",
        "Grant": "core.model",
        "InvalidObject": "errors",
        "NodeClaims": "simulated",
        "Object": "v1alpha1.objects",
        "ObjectMeta": "v1alpha1.objects",
        "PoolKey": "core.inventory",
        "Quantity": "v1alpha1.objects",
        "RequestExplanation": "explanation",
        "ResourceAllocation": "v1alpha1.objects",
        "ResourceCapacity": "v1alpha1.objects",
        "SimulatedHardware": "simulated",
        "TryAgain": "errors",
        "publish_hardware": "simulated",
        "simulated_classes": "simulated",
    },
)

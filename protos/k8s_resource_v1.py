"""Objects that the API server reads and writes as protobuf.

Field numbers are those of Kubernetes 1.37. The JSON names are those of the objects, except
for `deviceConfiguration`, whose fields stand beside it. Messages with the prefix Beta are those
of resource.k8s.io/v1beta1 that differ from v1; v1beta2 has the messages of v1.
"""

# Generated from k8s_resource_v1.proto by tools/generate_protos.py: edit that file instead.

from protos._pool import file, message

__all__ = [
    "DESCRIPTOR",
    "AllocatedDeviceStatus",
    "AllocationResult",
    "BetaBasicDevice",
    "BetaDevice",
    "BetaDeviceClaim",
    "BetaDeviceRequest",
    "BetaDeviceSubRequest",
    "BetaResourceClaim",
    "BetaResourceClaimSpec",
    "BetaResourceClaimTemplate",
    "BetaResourceClaimTemplateSpec",
    "BetaResourceSlice",
    "BetaResourceSliceSpec",
    "CELDeviceSelector",
    "CapacityRequestPolicy",
    "CapacityRequestPolicyRange",
    "CapacityRequirements",
    "Condition",
    "Counter",
    "CounterSet",
    "DeleteOptions",
    "Device",
    "DeviceAllocationConfiguration",
    "DeviceAllocationResult",
    "DeviceAttribute",
    "DeviceCapacity",
    "DeviceClaim",
    "DeviceClaimConfiguration",
    "DeviceClass",
    "DeviceClassConfiguration",
    "DeviceClassSpec",
    "DeviceConfiguration",
    "DeviceConstraint",
    "DeviceCounterConsumption",
    "DeviceDerivedAttribute",
    "DeviceRequest",
    "DeviceRequestAllocationResult",
    "DeviceSelector",
    "DeviceSubRequest",
    "DeviceTaint",
    "DeviceTaintRule",
    "DeviceTaintRuleSpec",
    "DeviceTaintRuleStatus",
    "DeviceTaintSelector",
    "DeviceToleration",
    "Event",
    "EventSeries",
    "EventSource",
    "ExactDeviceRequest",
    "FieldsV1",
    "Lease",
    "LeaseSpec",
    "ManagedFieldsEntry",
    "MicroTime",
    "NetworkDeviceData",
    "NewEvent",
    "NodeAllocatableMapping",
    "NodeAllocatableOverhead",
    "NodeAllocatableResource",
    "NodeSelector",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "NonResourceAttributes",
    "ObjectMeta",
    "ObjectReference",
    "OpaqueDeviceConfiguration",
    "OwnerReference",
    "Preconditions",
    "Quantity",
    "RawExtension",
    "ResourceAttributes",
    "ResourceClaim",
    "ResourceClaimConsumerReference",
    "ResourceClaimSpec",
    "ResourceClaimStatus",
    "ResourceClaimTemplate",
    "ResourceClaimTemplateSpec",
    "ResourcePool",
    "ResourceSlice",
    "ResourceSliceSpec",
    "SelfSubjectAccessReview",
    "SelfSubjectAccessReviewSpec",
    "SubjectAccessReviewStatus",
    "Time",
    "TypeMeta",
    "Unknown",
]

DESCRIPTOR = file("k8s_resource_v1.proto")

AllocatedDeviceStatus = message("k8s.resource.AllocatedDeviceStatus")
AllocationResult = message("k8s.resource.AllocationResult")
BetaBasicDevice = message("k8s.resource.BetaBasicDevice")
BetaDevice = message("k8s.resource.BetaDevice")
BetaDeviceClaim = message("k8s.resource.BetaDeviceClaim")
BetaDeviceRequest = message("k8s.resource.BetaDeviceRequest")
BetaDeviceSubRequest = message("k8s.resource.BetaDeviceSubRequest")
BetaResourceClaim = message("k8s.resource.BetaResourceClaim")
BetaResourceClaimSpec = message("k8s.resource.BetaResourceClaimSpec")
BetaResourceClaimTemplate = message("k8s.resource.BetaResourceClaimTemplate")
BetaResourceClaimTemplateSpec = message("k8s.resource.BetaResourceClaimTemplateSpec")
BetaResourceSlice = message("k8s.resource.BetaResourceSlice")
BetaResourceSliceSpec = message("k8s.resource.BetaResourceSliceSpec")
CELDeviceSelector = message("k8s.resource.CELDeviceSelector")
CapacityRequestPolicy = message("k8s.resource.CapacityRequestPolicy")
CapacityRequestPolicyRange = message("k8s.resource.CapacityRequestPolicyRange")
CapacityRequirements = message("k8s.resource.CapacityRequirements")
Condition = message("k8s.resource.Condition")
Counter = message("k8s.resource.Counter")
CounterSet = message("k8s.resource.CounterSet")
DeleteOptions = message("k8s.resource.DeleteOptions")
Device = message("k8s.resource.Device")
DeviceAllocationConfiguration = message("k8s.resource.DeviceAllocationConfiguration")
DeviceAllocationResult = message("k8s.resource.DeviceAllocationResult")
DeviceAttribute = message("k8s.resource.DeviceAttribute")
DeviceCapacity = message("k8s.resource.DeviceCapacity")
DeviceClaim = message("k8s.resource.DeviceClaim")
DeviceClaimConfiguration = message("k8s.resource.DeviceClaimConfiguration")
DeviceClass = message("k8s.resource.DeviceClass")
DeviceClassConfiguration = message("k8s.resource.DeviceClassConfiguration")
DeviceClassSpec = message("k8s.resource.DeviceClassSpec")
DeviceConfiguration = message("k8s.resource.DeviceConfiguration")
DeviceConstraint = message("k8s.resource.DeviceConstraint")
DeviceCounterConsumption = message("k8s.resource.DeviceCounterConsumption")
DeviceDerivedAttribute = message("k8s.resource.DeviceDerivedAttribute")
DeviceRequest = message("k8s.resource.DeviceRequest")
DeviceRequestAllocationResult = message("k8s.resource.DeviceRequestAllocationResult")
DeviceSelector = message("k8s.resource.DeviceSelector")
DeviceSubRequest = message("k8s.resource.DeviceSubRequest")
DeviceTaint = message("k8s.resource.DeviceTaint")
DeviceTaintRule = message("k8s.resource.DeviceTaintRule")
DeviceTaintRuleSpec = message("k8s.resource.DeviceTaintRuleSpec")
DeviceTaintRuleStatus = message("k8s.resource.DeviceTaintRuleStatus")
DeviceTaintSelector = message("k8s.resource.DeviceTaintSelector")
DeviceToleration = message("k8s.resource.DeviceToleration")
Event = message("k8s.resource.Event")
EventSeries = message("k8s.resource.EventSeries")
EventSource = message("k8s.resource.EventSource")
ExactDeviceRequest = message("k8s.resource.ExactDeviceRequest")
FieldsV1 = message("k8s.resource.FieldsV1")
Lease = message("k8s.resource.Lease")
LeaseSpec = message("k8s.resource.LeaseSpec")
ManagedFieldsEntry = message("k8s.resource.ManagedFieldsEntry")
MicroTime = message("k8s.resource.MicroTime")
NetworkDeviceData = message("k8s.resource.NetworkDeviceData")
NewEvent = message("k8s.resource.NewEvent")
NodeAllocatableMapping = message("k8s.resource.NodeAllocatableMapping")
NodeAllocatableOverhead = message("k8s.resource.NodeAllocatableOverhead")
NodeAllocatableResource = message("k8s.resource.NodeAllocatableResource")
NodeSelector = message("k8s.resource.NodeSelector")
NodeSelectorRequirement = message("k8s.resource.NodeSelectorRequirement")
NodeSelectorTerm = message("k8s.resource.NodeSelectorTerm")
NonResourceAttributes = message("k8s.resource.NonResourceAttributes")
ObjectMeta = message("k8s.resource.ObjectMeta")
ObjectReference = message("k8s.resource.ObjectReference")
OpaqueDeviceConfiguration = message("k8s.resource.OpaqueDeviceConfiguration")
OwnerReference = message("k8s.resource.OwnerReference")
Preconditions = message("k8s.resource.Preconditions")
Quantity = message("k8s.resource.Quantity")
RawExtension = message("k8s.resource.RawExtension")
ResourceAttributes = message("k8s.resource.ResourceAttributes")
ResourceClaim = message("k8s.resource.ResourceClaim")
ResourceClaimConsumerReference = message("k8s.resource.ResourceClaimConsumerReference")
ResourceClaimSpec = message("k8s.resource.ResourceClaimSpec")
ResourceClaimStatus = message("k8s.resource.ResourceClaimStatus")
ResourceClaimTemplate = message("k8s.resource.ResourceClaimTemplate")
ResourceClaimTemplateSpec = message("k8s.resource.ResourceClaimTemplateSpec")
ResourcePool = message("k8s.resource.ResourcePool")
ResourceSlice = message("k8s.resource.ResourceSlice")
ResourceSliceSpec = message("k8s.resource.ResourceSliceSpec")
SelfSubjectAccessReview = message("k8s.resource.SelfSubjectAccessReview")
SelfSubjectAccessReviewSpec = message("k8s.resource.SelfSubjectAccessReviewSpec")
SubjectAccessReviewStatus = message("k8s.resource.SubjectAccessReviewStatus")
Time = message("k8s.resource.Time")
TypeMeta = message("k8s.resource.TypeMeta")
Unknown = message("k8s.resource.Unknown")

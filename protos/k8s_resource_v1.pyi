"""Objects that the API server reads and writes as protobuf.

Field numbers are those of Kubernetes 1.37. The JSON names are those of the objects, except
for `deviceConfiguration`, whose fields stand beside it. Messages with the prefix Beta are those
of resource.k8s.io/v1beta1 that differ from v1; v1beta2 has the messages of v1.
"""

# Generated from k8s_resource_v1.proto by tools/generate_protos.py: edit that file instead.

from collections.abc import Iterable, Mapping

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.containers import (
    MessageMap,
    RepeatedCompositeFieldContainer,
    RepeatedScalarFieldContainer,
    ScalarMap,
)
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor

class TypeMeta(Message):
    apiVersion: str
    kind: str
    def __init__(
        self,
        *,
        apiVersion: str | None = ...,
        kind: str | None = ...,
    ) -> None: ...

class Unknown(Message):
    @property
    def typeMeta(self) -> TypeMeta: ...
    raw: bytes
    contentEncoding: str
    contentType: str
    def __init__(
        self,
        *,
        typeMeta: TypeMeta | None = ...,
        raw: bytes | None = ...,
        contentEncoding: str | None = ...,
        contentType: str | None = ...,
    ) -> None: ...

class ObjectMeta(Message):
    name: str
    generateName: str
    namespace: str
    selfLink: str
    uid: str
    resourceVersion: str
    generation: int
    @property
    def creationTimestamp(self) -> Time: ...
    @property
    def deletionTimestamp(self) -> Time: ...
    deletionGracePeriodSeconds: int
    @property
    def labels(self) -> ScalarMap[str, str]: ...
    @property
    def annotations(self) -> ScalarMap[str, str]: ...
    @property
    def ownerReferences(self) -> RepeatedCompositeFieldContainer[OwnerReference]: ...
    @property
    def finalizers(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def managedFields(self) -> RepeatedCompositeFieldContainer[ManagedFieldsEntry]: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        generateName: str | None = ...,
        namespace: str | None = ...,
        selfLink: str | None = ...,
        uid: str | None = ...,
        resourceVersion: str | None = ...,
        generation: int | None = ...,
        creationTimestamp: Time | None = ...,
        deletionTimestamp: Time | None = ...,
        deletionGracePeriodSeconds: int | None = ...,
        labels: Mapping[str, str] | None = ...,
        annotations: Mapping[str, str] | None = ...,
        ownerReferences: Iterable[OwnerReference] | None = ...,
        finalizers: Iterable[str] | None = ...,
        managedFields: Iterable[ManagedFieldsEntry] | None = ...,
    ) -> None: ...

class OwnerReference(Message):
    kind: str
    name: str
    uid: str
    apiVersion: str
    controller: bool
    blockOwnerDeletion: bool
    def __init__(
        self,
        *,
        kind: str | None = ...,
        name: str | None = ...,
        uid: str | None = ...,
        apiVersion: str | None = ...,
        controller: bool | None = ...,
        blockOwnerDeletion: bool | None = ...,
    ) -> None: ...

class ManagedFieldsEntry(Message):
    manager: str
    operation: str
    apiVersion: str
    @property
    def time(self) -> Time: ...
    fieldsType: str
    @property
    def fieldsV1(self) -> FieldsV1: ...
    subresource: str
    def __init__(
        self,
        *,
        manager: str | None = ...,
        operation: str | None = ...,
        apiVersion: str | None = ...,
        time: Time | None = ...,
        fieldsType: str | None = ...,
        fieldsV1: FieldsV1 | None = ...,
        subresource: str | None = ...,
    ) -> None: ...

class FieldsV1(Message):
    Raw: bytes
    def __init__(
        self,
        *,
        Raw: bytes | None = ...,
    ) -> None: ...

class Time(Message):
    seconds: int
    nanos: int
    def __init__(
        self,
        *,
        seconds: int | None = ...,
        nanos: int | None = ...,
    ) -> None: ...

class MicroTime(Message):
    seconds: int
    nanos: int
    def __init__(
        self,
        *,
        seconds: int | None = ...,
        nanos: int | None = ...,
    ) -> None: ...

class Condition(Message):
    type: str
    status: str
    observedGeneration: int
    @property
    def lastTransitionTime(self) -> Time: ...
    reason: str
    message: str
    def __init__(
        self,
        *,
        type: str | None = ...,
        status: str | None = ...,
        observedGeneration: int | None = ...,
        lastTransitionTime: Time | None = ...,
        reason: str | None = ...,
        message: str | None = ...,
    ) -> None: ...

class DeleteOptions(Message):
    gracePeriodSeconds: int
    @property
    def preconditions(self) -> Preconditions: ...
    orphanDependents: bool
    propagationPolicy: str
    @property
    def dryRun(self) -> RepeatedScalarFieldContainer[str]: ...
    ignoreStoreReadErrorWithClusterBreakingPotential: bool
    def __init__(
        self,
        *,
        gracePeriodSeconds: int | None = ...,
        preconditions: Preconditions | None = ...,
        orphanDependents: bool | None = ...,
        propagationPolicy: str | None = ...,
        dryRun: Iterable[str] | None = ...,
        ignoreStoreReadErrorWithClusterBreakingPotential: bool | None = ...,
    ) -> None: ...

class Preconditions(Message):
    uid: str
    resourceVersion: str
    def __init__(
        self,
        *,
        uid: str | None = ...,
        resourceVersion: str | None = ...,
    ) -> None: ...

class Quantity(Message):
    string: str
    def __init__(
        self,
        *,
        string: str | None = ...,
    ) -> None: ...

class RawExtension(Message):
    raw: bytes
    def __init__(
        self,
        *,
        raw: bytes | None = ...,
    ) -> None: ...

class NodeSelector(Message):
    @property
    def nodeSelectorTerms(self) -> RepeatedCompositeFieldContainer[NodeSelectorTerm]: ...
    def __init__(
        self,
        *,
        nodeSelectorTerms: Iterable[NodeSelectorTerm] | None = ...,
    ) -> None: ...

class NodeSelectorTerm(Message):
    @property
    def matchExpressions(self) -> RepeatedCompositeFieldContainer[NodeSelectorRequirement]: ...
    @property
    def matchFields(self) -> RepeatedCompositeFieldContainer[NodeSelectorRequirement]: ...
    def __init__(
        self,
        *,
        matchExpressions: Iterable[NodeSelectorRequirement] | None = ...,
        matchFields: Iterable[NodeSelectorRequirement] | None = ...,
    ) -> None: ...

class NodeSelectorRequirement(Message):
    key: str
    operator: str
    @property
    def values(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        key: str | None = ...,
        operator: str | None = ...,
        values: Iterable[str] | None = ...,
    ) -> None: ...

class ResourceSlice(Message):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def spec(self) -> ResourceSliceSpec: ...
    def __init__(
        self,
        *,
        metadata: ObjectMeta | None = ...,
        spec: ResourceSliceSpec | None = ...,
    ) -> None: ...

class ResourceSliceSpec(Message):
    driver: str
    @property
    def pool(self) -> ResourcePool: ...
    nodeName: str
    @property
    def nodeSelector(self) -> NodeSelector: ...
    allNodes: bool
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[Device]: ...
    perDeviceNodeSelection: bool
    @property
    def sharedCounters(self) -> RepeatedCompositeFieldContainer[CounterSet]: ...
    partitionTypeAttribute: str
    @property
    def skipNodeOperations(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        driver: str | None = ...,
        pool: ResourcePool | None = ...,
        nodeName: str | None = ...,
        nodeSelector: NodeSelector | None = ...,
        allNodes: bool | None = ...,
        devices: Iterable[Device] | None = ...,
        perDeviceNodeSelection: bool | None = ...,
        sharedCounters: Iterable[CounterSet] | None = ...,
        partitionTypeAttribute: str | None = ...,
        skipNodeOperations: Iterable[str] | None = ...,
    ) -> None: ...

class ResourcePool(Message):
    name: str
    generation: int
    resourceSliceCount: int
    def __init__(
        self,
        *,
        name: str | None = ...,
        generation: int | None = ...,
        resourceSliceCount: int | None = ...,
    ) -> None: ...

class Device(Message):
    name: str
    @property
    def attributes(self) -> MessageMap[str, DeviceAttribute]: ...
    @property
    def capacity(self) -> MessageMap[str, DeviceCapacity]: ...
    @property
    def consumesCounters(self) -> RepeatedCompositeFieldContainer[DeviceCounterConsumption]: ...
    nodeName: str
    @property
    def nodeSelector(self) -> NodeSelector: ...
    allNodes: bool
    @property
    def taints(self) -> RepeatedCompositeFieldContainer[DeviceTaint]: ...
    bindsToNode: bool
    @property
    def bindingConditions(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def bindingFailureConditions(self) -> RepeatedScalarFieldContainer[str]: ...
    allowMultipleAllocations: bool
    @property
    def nodeAllocatableResources(self) -> MessageMap[str, NodeAllocatableResource]: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        attributes: Mapping[str, DeviceAttribute] | None = ...,
        capacity: Mapping[str, DeviceCapacity] | None = ...,
        consumesCounters: Iterable[DeviceCounterConsumption] | None = ...,
        nodeName: str | None = ...,
        nodeSelector: NodeSelector | None = ...,
        allNodes: bool | None = ...,
        taints: Iterable[DeviceTaint] | None = ...,
        bindsToNode: bool | None = ...,
        bindingConditions: Iterable[str] | None = ...,
        bindingFailureConditions: Iterable[str] | None = ...,
        allowMultipleAllocations: bool | None = ...,
        nodeAllocatableResources: Mapping[str, NodeAllocatableResource] | None = ...,
    ) -> None: ...

class DeviceAttribute(Message):
    int_value: int
    bool_value: bool
    string: str
    version: str
    @property
    def ints(self) -> RepeatedScalarFieldContainer[int]: ...
    @property
    def bools(self) -> RepeatedScalarFieldContainer[bool]: ...
    @property
    def strings(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def versions(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        int_value: int | None = ...,
        bool_value: bool | None = ...,
        string: str | None = ...,
        version: str | None = ...,
        ints: Iterable[int] | None = ...,
        bools: Iterable[bool] | None = ...,
        strings: Iterable[str] | None = ...,
        versions: Iterable[str] | None = ...,
    ) -> None: ...

class DeviceCapacity(Message):
    @property
    def value(self) -> Quantity: ...
    @property
    def requestPolicy(self) -> CapacityRequestPolicy: ...
    def __init__(
        self,
        *,
        value: Quantity | None = ...,
        requestPolicy: CapacityRequestPolicy | None = ...,
    ) -> None: ...

class CapacityRequestPolicy(Message):
    @property
    def default(self) -> Quantity: ...
    @property
    def validValues(self) -> RepeatedCompositeFieldContainer[Quantity]: ...
    @property
    def validRange(self) -> CapacityRequestPolicyRange: ...
    def __init__(
        self,
        *,
        default: Quantity | None = ...,
        validValues: Iterable[Quantity] | None = ...,
        validRange: CapacityRequestPolicyRange | None = ...,
    ) -> None: ...

class CapacityRequestPolicyRange(Message):
    @property
    def min(self) -> Quantity: ...
    @property
    def max(self) -> Quantity: ...
    @property
    def step(self) -> Quantity: ...
    def __init__(
        self,
        *,
        min: Quantity | None = ...,
        max: Quantity | None = ...,
        step: Quantity | None = ...,
    ) -> None: ...

class DeviceCounterConsumption(Message):
    counterSet: str
    @property
    def counters(self) -> MessageMap[str, Counter]: ...
    @property
    def compatibilityGroups(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        counterSet: str | None = ...,
        counters: Mapping[str, Counter] | None = ...,
        compatibilityGroups: Iterable[str] | None = ...,
    ) -> None: ...

class CounterSet(Message):
    name: str
    @property
    def counters(self) -> MessageMap[str, Counter]: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        counters: Mapping[str, Counter] | None = ...,
    ) -> None: ...

class Counter(Message):
    @property
    def value(self) -> Quantity: ...
    def __init__(
        self,
        *,
        value: Quantity | None = ...,
    ) -> None: ...

class DeviceTaint(Message):
    key: str
    value: str
    effect: str
    @property
    def timeAdded(self) -> Time: ...
    def __init__(
        self,
        *,
        key: str | None = ...,
        value: str | None = ...,
        effect: str | None = ...,
        timeAdded: Time | None = ...,
    ) -> None: ...

class NodeAllocatableResource(Message):
    @property
    def mapping(self) -> NodeAllocatableMapping: ...
    @property
    def overhead(self) -> NodeAllocatableOverhead: ...
    def __init__(
        self,
        *,
        mapping: NodeAllocatableMapping | None = ...,
        overhead: NodeAllocatableOverhead | None = ...,
    ) -> None: ...

class NodeAllocatableMapping(Message):
    capacityKey: str
    @property
    def capacityMultiplier(self) -> Quantity: ...
    @property
    def deviceMultiplier(self) -> Quantity: ...
    def __init__(
        self,
        *,
        capacityKey: str | None = ...,
        capacityMultiplier: Quantity | None = ...,
        deviceMultiplier: Quantity | None = ...,
    ) -> None: ...

class NodeAllocatableOverhead(Message):
    @property
    def perPod(self) -> Quantity: ...
    @property
    def perContainer(self) -> Quantity: ...
    def __init__(
        self,
        *,
        perPod: Quantity | None = ...,
        perContainer: Quantity | None = ...,
    ) -> None: ...

class ResourceClaim(Message):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def spec(self) -> ResourceClaimSpec: ...
    @property
    def status(self) -> ResourceClaimStatus: ...
    def __init__(
        self,
        *,
        metadata: ObjectMeta | None = ...,
        spec: ResourceClaimSpec | None = ...,
        status: ResourceClaimStatus | None = ...,
    ) -> None: ...

class ResourceClaimSpec(Message):
    @property
    def devices(self) -> DeviceClaim: ...
    def __init__(
        self,
        *,
        devices: DeviceClaim | None = ...,
    ) -> None: ...

class DeviceClaim(Message):
    @property
    def requests(self) -> RepeatedCompositeFieldContainer[DeviceRequest]: ...
    @property
    def constraints(self) -> RepeatedCompositeFieldContainer[DeviceConstraint]: ...
    @property
    def config(self) -> RepeatedCompositeFieldContainer[DeviceClaimConfiguration]: ...
    def __init__(
        self,
        *,
        requests: Iterable[DeviceRequest] | None = ...,
        constraints: Iterable[DeviceConstraint] | None = ...,
        config: Iterable[DeviceClaimConfiguration] | None = ...,
    ) -> None: ...

class DeviceRequest(Message):
    name: str
    @property
    def exactly(self) -> ExactDeviceRequest: ...
    @property
    def firstAvailable(self) -> RepeatedCompositeFieldContainer[DeviceSubRequest]: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        exactly: ExactDeviceRequest | None = ...,
        firstAvailable: Iterable[DeviceSubRequest] | None = ...,
    ) -> None: ...

class ExactDeviceRequest(Message):
    deviceClassName: str
    @property
    def selectors(self) -> RepeatedCompositeFieldContainer[DeviceSelector]: ...
    allocationMode: str
    count: int
    adminAccess: bool
    @property
    def tolerations(self) -> RepeatedCompositeFieldContainer[DeviceToleration]: ...
    @property
    def capacity(self) -> CapacityRequirements: ...
    @property
    def derivedAttributes(self) -> RepeatedCompositeFieldContainer[DeviceDerivedAttribute]: ...
    def __init__(
        self,
        *,
        deviceClassName: str | None = ...,
        selectors: Iterable[DeviceSelector] | None = ...,
        allocationMode: str | None = ...,
        count: int | None = ...,
        adminAccess: bool | None = ...,
        tolerations: Iterable[DeviceToleration] | None = ...,
        capacity: CapacityRequirements | None = ...,
        derivedAttributes: Iterable[DeviceDerivedAttribute] | None = ...,
    ) -> None: ...

class DeviceSubRequest(Message):
    name: str
    deviceClassName: str
    @property
    def selectors(self) -> RepeatedCompositeFieldContainer[DeviceSelector]: ...
    allocationMode: str
    count: int
    @property
    def tolerations(self) -> RepeatedCompositeFieldContainer[DeviceToleration]: ...
    @property
    def capacity(self) -> CapacityRequirements: ...
    @property
    def derivedAttributes(self) -> RepeatedCompositeFieldContainer[DeviceDerivedAttribute]: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        deviceClassName: str | None = ...,
        selectors: Iterable[DeviceSelector] | None = ...,
        allocationMode: str | None = ...,
        count: int | None = ...,
        tolerations: Iterable[DeviceToleration] | None = ...,
        capacity: CapacityRequirements | None = ...,
        derivedAttributes: Iterable[DeviceDerivedAttribute] | None = ...,
    ) -> None: ...

class DeviceDerivedAttribute(Message):
    name: str
    expression: str
    def __init__(
        self,
        *,
        name: str | None = ...,
        expression: str | None = ...,
    ) -> None: ...

class DeviceSelector(Message):
    @property
    def cel(self) -> CELDeviceSelector: ...
    def __init__(
        self,
        *,
        cel: CELDeviceSelector | None = ...,
    ) -> None: ...

class CELDeviceSelector(Message):
    expression: str
    def __init__(
        self,
        *,
        expression: str | None = ...,
    ) -> None: ...

class CapacityRequirements(Message):
    @property
    def requests(self) -> MessageMap[str, Quantity]: ...
    def __init__(
        self,
        *,
        requests: Mapping[str, Quantity] | None = ...,
    ) -> None: ...

class DeviceToleration(Message):
    key: str
    operator: str
    value: str
    effect: str
    tolerationSeconds: int
    def __init__(
        self,
        *,
        key: str | None = ...,
        operator: str | None = ...,
        value: str | None = ...,
        effect: str | None = ...,
        tolerationSeconds: int | None = ...,
    ) -> None: ...

class DeviceConstraint(Message):
    @property
    def requests(self) -> RepeatedScalarFieldContainer[str]: ...
    matchAttribute: str
    distinctAttribute: str
    def __init__(
        self,
        *,
        requests: Iterable[str] | None = ...,
        matchAttribute: str | None = ...,
        distinctAttribute: str | None = ...,
    ) -> None: ...

class DeviceClaimConfiguration(Message):
    @property
    def requests(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def deviceConfiguration(self) -> DeviceConfiguration: ...
    def __init__(
        self,
        *,
        requests: Iterable[str] | None = ...,
        deviceConfiguration: DeviceConfiguration | None = ...,
    ) -> None: ...

class DeviceConfiguration(Message):
    @property
    def opaque(self) -> OpaqueDeviceConfiguration: ...
    def __init__(
        self,
        *,
        opaque: OpaqueDeviceConfiguration | None = ...,
    ) -> None: ...

class OpaqueDeviceConfiguration(Message):
    driver: str
    @property
    def parameters(self) -> RawExtension: ...
    def __init__(
        self,
        *,
        driver: str | None = ...,
        parameters: RawExtension | None = ...,
    ) -> None: ...

class ResourceClaimStatus(Message):
    @property
    def allocation(self) -> AllocationResult: ...
    @property
    def reservedFor(self) -> RepeatedCompositeFieldContainer[ResourceClaimConsumerReference]: ...
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[AllocatedDeviceStatus]: ...
    def __init__(
        self,
        *,
        allocation: AllocationResult | None = ...,
        reservedFor: Iterable[ResourceClaimConsumerReference] | None = ...,
        devices: Iterable[AllocatedDeviceStatus] | None = ...,
    ) -> None: ...

class AllocationResult(Message):
    @property
    def devices(self) -> DeviceAllocationResult: ...
    @property
    def nodeSelector(self) -> NodeSelector: ...
    @property
    def allocationTimestamp(self) -> Time: ...
    def __init__(
        self,
        *,
        devices: DeviceAllocationResult | None = ...,
        nodeSelector: NodeSelector | None = ...,
        allocationTimestamp: Time | None = ...,
    ) -> None: ...

class DeviceAllocationResult(Message):
    @property
    def results(self) -> RepeatedCompositeFieldContainer[DeviceRequestAllocationResult]: ...
    @property
    def config(self) -> RepeatedCompositeFieldContainer[DeviceAllocationConfiguration]: ...
    def __init__(
        self,
        *,
        results: Iterable[DeviceRequestAllocationResult] | None = ...,
        config: Iterable[DeviceAllocationConfiguration] | None = ...,
    ) -> None: ...

class DeviceRequestAllocationResult(Message):
    request: str
    driver: str
    pool: str
    device: str
    adminAccess: bool
    @property
    def tolerations(self) -> RepeatedCompositeFieldContainer[DeviceToleration]: ...
    @property
    def bindingConditions(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def bindingFailureConditions(self) -> RepeatedScalarFieldContainer[str]: ...
    shareID: str
    @property
    def consumedCapacity(self) -> MessageMap[str, Quantity]: ...
    @property
    def skipNodeOperations(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        request: str | None = ...,
        driver: str | None = ...,
        pool: str | None = ...,
        device: str | None = ...,
        adminAccess: bool | None = ...,
        tolerations: Iterable[DeviceToleration] | None = ...,
        bindingConditions: Iterable[str] | None = ...,
        bindingFailureConditions: Iterable[str] | None = ...,
        shareID: str | None = ...,
        consumedCapacity: Mapping[str, Quantity] | None = ...,
        skipNodeOperations: Iterable[str] | None = ...,
    ) -> None: ...

class DeviceAllocationConfiguration(Message):
    source: str
    @property
    def requests(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def deviceConfiguration(self) -> DeviceConfiguration: ...
    def __init__(
        self,
        *,
        source: str | None = ...,
        requests: Iterable[str] | None = ...,
        deviceConfiguration: DeviceConfiguration | None = ...,
    ) -> None: ...

class ResourceClaimConsumerReference(Message):
    apiGroup: str
    resource: str
    name: str
    uid: str
    def __init__(
        self,
        *,
        apiGroup: str | None = ...,
        resource: str | None = ...,
        name: str | None = ...,
        uid: str | None = ...,
    ) -> None: ...

class AllocatedDeviceStatus(Message):
    driver: str
    pool: str
    device: str
    @property
    def conditions(self) -> RepeatedCompositeFieldContainer[Condition]: ...
    @property
    def data(self) -> RawExtension: ...
    @property
    def networkData(self) -> NetworkDeviceData: ...
    shareID: str
    def __init__(
        self,
        *,
        driver: str | None = ...,
        pool: str | None = ...,
        device: str | None = ...,
        conditions: Iterable[Condition] | None = ...,
        data: RawExtension | None = ...,
        networkData: NetworkDeviceData | None = ...,
        shareID: str | None = ...,
    ) -> None: ...

class NetworkDeviceData(Message):
    interfaceName: str
    @property
    def ips(self) -> RepeatedScalarFieldContainer[str]: ...
    hardwareAddress: str
    def __init__(
        self,
        *,
        interfaceName: str | None = ...,
        ips: Iterable[str] | None = ...,
        hardwareAddress: str | None = ...,
    ) -> None: ...

class ResourceClaimTemplate(Message):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def spec(self) -> ResourceClaimTemplateSpec: ...
    def __init__(
        self,
        *,
        metadata: ObjectMeta | None = ...,
        spec: ResourceClaimTemplateSpec | None = ...,
    ) -> None: ...

class ResourceClaimTemplateSpec(Message):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def spec(self) -> ResourceClaimSpec: ...
    def __init__(
        self,
        *,
        metadata: ObjectMeta | None = ...,
        spec: ResourceClaimSpec | None = ...,
    ) -> None: ...

class DeviceClass(Message):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def spec(self) -> DeviceClassSpec: ...
    def __init__(
        self,
        *,
        metadata: ObjectMeta | None = ...,
        spec: DeviceClassSpec | None = ...,
    ) -> None: ...

class DeviceClassSpec(Message):
    @property
    def selectors(self) -> RepeatedCompositeFieldContainer[DeviceSelector]: ...
    @property
    def config(self) -> RepeatedCompositeFieldContainer[DeviceClassConfiguration]: ...
    extendedResourceName: str
    def __init__(
        self,
        *,
        selectors: Iterable[DeviceSelector] | None = ...,
        config: Iterable[DeviceClassConfiguration] | None = ...,
        extendedResourceName: str | None = ...,
    ) -> None: ...

class DeviceClassConfiguration(Message):
    @property
    def deviceConfiguration(self) -> DeviceConfiguration: ...
    def __init__(
        self,
        *,
        deviceConfiguration: DeviceConfiguration | None = ...,
    ) -> None: ...

class DeviceTaintRule(Message):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def spec(self) -> DeviceTaintRuleSpec: ...
    @property
    def status(self) -> DeviceTaintRuleStatus: ...
    def __init__(
        self,
        *,
        metadata: ObjectMeta | None = ...,
        spec: DeviceTaintRuleSpec | None = ...,
        status: DeviceTaintRuleStatus | None = ...,
    ) -> None: ...

class DeviceTaintRuleSpec(Message):
    @property
    def deviceSelector(self) -> DeviceTaintSelector: ...
    @property
    def taint(self) -> DeviceTaint: ...
    def __init__(
        self,
        *,
        deviceSelector: DeviceTaintSelector | None = ...,
        taint: DeviceTaint | None = ...,
    ) -> None: ...

class DeviceTaintSelector(Message):
    driver: str
    pool: str
    device: str
    def __init__(
        self,
        *,
        driver: str | None = ...,
        pool: str | None = ...,
        device: str | None = ...,
    ) -> None: ...

class DeviceTaintRuleStatus(Message):
    @property
    def conditions(self) -> RepeatedCompositeFieldContainer[Condition]: ...
    def __init__(
        self,
        *,
        conditions: Iterable[Condition] | None = ...,
    ) -> None: ...

class BetaResourceSlice(Message):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def spec(self) -> BetaResourceSliceSpec: ...
    def __init__(
        self,
        *,
        metadata: ObjectMeta | None = ...,
        spec: BetaResourceSliceSpec | None = ...,
    ) -> None: ...

class BetaResourceSliceSpec(Message):
    driver: str
    @property
    def pool(self) -> ResourcePool: ...
    nodeName: str
    @property
    def nodeSelector(self) -> NodeSelector: ...
    allNodes: bool
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[BetaDevice]: ...
    perDeviceNodeSelection: bool
    @property
    def sharedCounters(self) -> RepeatedCompositeFieldContainer[CounterSet]: ...
    partitionTypeAttribute: str
    @property
    def skipNodeOperations(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        driver: str | None = ...,
        pool: ResourcePool | None = ...,
        nodeName: str | None = ...,
        nodeSelector: NodeSelector | None = ...,
        allNodes: bool | None = ...,
        devices: Iterable[BetaDevice] | None = ...,
        perDeviceNodeSelection: bool | None = ...,
        sharedCounters: Iterable[CounterSet] | None = ...,
        partitionTypeAttribute: str | None = ...,
        skipNodeOperations: Iterable[str] | None = ...,
    ) -> None: ...

class BetaDevice(Message):
    name: str
    @property
    def basic(self) -> BetaBasicDevice: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        basic: BetaBasicDevice | None = ...,
    ) -> None: ...

class BetaBasicDevice(Message):
    @property
    def attributes(self) -> MessageMap[str, DeviceAttribute]: ...
    @property
    def capacity(self) -> MessageMap[str, DeviceCapacity]: ...
    @property
    def consumesCounters(self) -> RepeatedCompositeFieldContainer[DeviceCounterConsumption]: ...
    nodeName: str
    @property
    def nodeSelector(self) -> NodeSelector: ...
    allNodes: bool
    @property
    def taints(self) -> RepeatedCompositeFieldContainer[DeviceTaint]: ...
    bindsToNode: bool
    @property
    def bindingConditions(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def bindingFailureConditions(self) -> RepeatedScalarFieldContainer[str]: ...
    allowMultipleAllocations: bool
    @property
    def nodeAllocatableResources(self) -> MessageMap[str, NodeAllocatableResource]: ...
    def __init__(
        self,
        *,
        attributes: Mapping[str, DeviceAttribute] | None = ...,
        capacity: Mapping[str, DeviceCapacity] | None = ...,
        consumesCounters: Iterable[DeviceCounterConsumption] | None = ...,
        nodeName: str | None = ...,
        nodeSelector: NodeSelector | None = ...,
        allNodes: bool | None = ...,
        taints: Iterable[DeviceTaint] | None = ...,
        bindsToNode: bool | None = ...,
        bindingConditions: Iterable[str] | None = ...,
        bindingFailureConditions: Iterable[str] | None = ...,
        allowMultipleAllocations: bool | None = ...,
        nodeAllocatableResources: Mapping[str, NodeAllocatableResource] | None = ...,
    ) -> None: ...

class BetaResourceClaim(Message):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def spec(self) -> BetaResourceClaimSpec: ...
    @property
    def status(self) -> ResourceClaimStatus: ...
    def __init__(
        self,
        *,
        metadata: ObjectMeta | None = ...,
        spec: BetaResourceClaimSpec | None = ...,
        status: ResourceClaimStatus | None = ...,
    ) -> None: ...

class BetaResourceClaimSpec(Message):
    @property
    def devices(self) -> BetaDeviceClaim: ...
    def __init__(
        self,
        *,
        devices: BetaDeviceClaim | None = ...,
    ) -> None: ...

class BetaDeviceClaim(Message):
    @property
    def requests(self) -> RepeatedCompositeFieldContainer[BetaDeviceRequest]: ...
    @property
    def constraints(self) -> RepeatedCompositeFieldContainer[DeviceConstraint]: ...
    @property
    def config(self) -> RepeatedCompositeFieldContainer[DeviceClaimConfiguration]: ...
    def __init__(
        self,
        *,
        requests: Iterable[BetaDeviceRequest] | None = ...,
        constraints: Iterable[DeviceConstraint] | None = ...,
        config: Iterable[DeviceClaimConfiguration] | None = ...,
    ) -> None: ...

class BetaDeviceRequest(Message):
    name: str
    deviceClassName: str
    @property
    def selectors(self) -> RepeatedCompositeFieldContainer[DeviceSelector]: ...
    allocationMode: str
    count: int
    adminAccess: bool
    @property
    def firstAvailable(self) -> RepeatedCompositeFieldContainer[BetaDeviceSubRequest]: ...
    @property
    def tolerations(self) -> RepeatedCompositeFieldContainer[DeviceToleration]: ...
    @property
    def capacity(self) -> CapacityRequirements: ...
    @property
    def derivedAttributes(self) -> RepeatedCompositeFieldContainer[DeviceDerivedAttribute]: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        deviceClassName: str | None = ...,
        selectors: Iterable[DeviceSelector] | None = ...,
        allocationMode: str | None = ...,
        count: int | None = ...,
        adminAccess: bool | None = ...,
        firstAvailable: Iterable[BetaDeviceSubRequest] | None = ...,
        tolerations: Iterable[DeviceToleration] | None = ...,
        capacity: CapacityRequirements | None = ...,
        derivedAttributes: Iterable[DeviceDerivedAttribute] | None = ...,
    ) -> None: ...

class BetaDeviceSubRequest(Message):
    name: str
    deviceClassName: str
    @property
    def selectors(self) -> RepeatedCompositeFieldContainer[DeviceSelector]: ...
    allocationMode: str
    count: int
    @property
    def tolerations(self) -> RepeatedCompositeFieldContainer[DeviceToleration]: ...
    @property
    def capacity(self) -> CapacityRequirements: ...
    @property
    def derivedAttributes(self) -> RepeatedCompositeFieldContainer[DeviceDerivedAttribute]: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        deviceClassName: str | None = ...,
        selectors: Iterable[DeviceSelector] | None = ...,
        allocationMode: str | None = ...,
        count: int | None = ...,
        tolerations: Iterable[DeviceToleration] | None = ...,
        capacity: CapacityRequirements | None = ...,
        derivedAttributes: Iterable[DeviceDerivedAttribute] | None = ...,
    ) -> None: ...

class BetaResourceClaimTemplate(Message):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def spec(self) -> BetaResourceClaimTemplateSpec: ...
    def __init__(
        self,
        *,
        metadata: ObjectMeta | None = ...,
        spec: BetaResourceClaimTemplateSpec | None = ...,
    ) -> None: ...

class BetaResourceClaimTemplateSpec(Message):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def spec(self) -> BetaResourceClaimSpec: ...
    def __init__(
        self,
        *,
        metadata: ObjectMeta | None = ...,
        spec: BetaResourceClaimSpec | None = ...,
    ) -> None: ...

class Event(Message):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def involvedObject(self) -> ObjectReference: ...
    reason: str
    message: str
    @property
    def source(self) -> EventSource: ...
    @property
    def firstTimestamp(self) -> Time: ...
    @property
    def lastTimestamp(self) -> Time: ...
    count: int
    type: str
    @property
    def eventTime(self) -> MicroTime: ...
    @property
    def series(self) -> EventSeries: ...
    action: str
    @property
    def related(self) -> ObjectReference: ...
    reportingComponent: str
    reportingInstance: str
    def __init__(
        self,
        *,
        metadata: ObjectMeta | None = ...,
        involvedObject: ObjectReference | None = ...,
        reason: str | None = ...,
        message: str | None = ...,
        source: EventSource | None = ...,
        firstTimestamp: Time | None = ...,
        lastTimestamp: Time | None = ...,
        count: int | None = ...,
        type: str | None = ...,
        eventTime: MicroTime | None = ...,
        series: EventSeries | None = ...,
        action: str | None = ...,
        related: ObjectReference | None = ...,
        reportingComponent: str | None = ...,
        reportingInstance: str | None = ...,
    ) -> None: ...

class EventSeries(Message):
    count: int
    @property
    def lastObservedTime(self) -> MicroTime: ...
    def __init__(
        self,
        *,
        count: int | None = ...,
        lastObservedTime: MicroTime | None = ...,
    ) -> None: ...

class EventSource(Message):
    component: str
    host: str
    def __init__(
        self,
        *,
        component: str | None = ...,
        host: str | None = ...,
    ) -> None: ...

class ObjectReference(Message):
    kind: str
    namespace: str
    name: str
    uid: str
    apiVersion: str
    resourceVersion: str
    fieldPath: str
    def __init__(
        self,
        *,
        kind: str | None = ...,
        namespace: str | None = ...,
        name: str | None = ...,
        uid: str | None = ...,
        apiVersion: str | None = ...,
        resourceVersion: str | None = ...,
        fieldPath: str | None = ...,
    ) -> None: ...

class NewEvent(Message):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def eventTime(self) -> MicroTime: ...
    @property
    def series(self) -> EventSeries: ...
    reportingController: str
    reportingInstance: str
    action: str
    reason: str
    @property
    def regarding(self) -> ObjectReference: ...
    @property
    def related(self) -> ObjectReference: ...
    note: str
    type: str
    @property
    def deprecatedSource(self) -> EventSource: ...
    @property
    def deprecatedFirstTimestamp(self) -> Time: ...
    @property
    def deprecatedLastTimestamp(self) -> Time: ...
    deprecatedCount: int
    def __init__(
        self,
        *,
        metadata: ObjectMeta | None = ...,
        eventTime: MicroTime | None = ...,
        series: EventSeries | None = ...,
        reportingController: str | None = ...,
        reportingInstance: str | None = ...,
        action: str | None = ...,
        reason: str | None = ...,
        regarding: ObjectReference | None = ...,
        related: ObjectReference | None = ...,
        note: str | None = ...,
        type: str | None = ...,
        deprecatedSource: EventSource | None = ...,
        deprecatedFirstTimestamp: Time | None = ...,
        deprecatedLastTimestamp: Time | None = ...,
        deprecatedCount: int | None = ...,
    ) -> None: ...

class Lease(Message):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def spec(self) -> LeaseSpec: ...
    def __init__(
        self,
        *,
        metadata: ObjectMeta | None = ...,
        spec: LeaseSpec | None = ...,
    ) -> None: ...

class LeaseSpec(Message):
    holderIdentity: str
    leaseDurationSeconds: int
    @property
    def acquireTime(self) -> MicroTime: ...
    @property
    def renewTime(self) -> MicroTime: ...
    leaseTransitions: int
    strategy: str
    preferredHolder: str
    def __init__(
        self,
        *,
        holderIdentity: str | None = ...,
        leaseDurationSeconds: int | None = ...,
        acquireTime: MicroTime | None = ...,
        renewTime: MicroTime | None = ...,
        leaseTransitions: int | None = ...,
        strategy: str | None = ...,
        preferredHolder: str | None = ...,
    ) -> None: ...

class SelfSubjectAccessReview(Message):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def spec(self) -> SelfSubjectAccessReviewSpec: ...
    @property
    def status(self) -> SubjectAccessReviewStatus: ...
    def __init__(
        self,
        *,
        metadata: ObjectMeta | None = ...,
        spec: SelfSubjectAccessReviewSpec | None = ...,
        status: SubjectAccessReviewStatus | None = ...,
    ) -> None: ...

class SelfSubjectAccessReviewSpec(Message):
    @property
    def resourceAttributes(self) -> ResourceAttributes: ...
    @property
    def nonResourceAttributes(self) -> NonResourceAttributes: ...
    def __init__(
        self,
        *,
        resourceAttributes: ResourceAttributes | None = ...,
        nonResourceAttributes: NonResourceAttributes | None = ...,
    ) -> None: ...

class ResourceAttributes(Message):
    namespace: str
    verb: str
    group: str
    version: str
    resource: str
    subresource: str
    name: str
    def __init__(
        self,
        *,
        namespace: str | None = ...,
        verb: str | None = ...,
        group: str | None = ...,
        version: str | None = ...,
        resource: str | None = ...,
        subresource: str | None = ...,
        name: str | None = ...,
    ) -> None: ...

class NonResourceAttributes(Message):
    path: str
    verb: str
    def __init__(
        self,
        *,
        path: str | None = ...,
        verb: str | None = ...,
    ) -> None: ...

class SubjectAccessReviewStatus(Message):
    allowed: bool
    reason: str
    evaluationError: str
    denied: bool
    def __init__(
        self,
        *,
        allowed: bool | None = ...,
        reason: str | None = ...,
        evaluationError: str | None = ...,
        denied: bool | None = ...,
    ) -> None: ...

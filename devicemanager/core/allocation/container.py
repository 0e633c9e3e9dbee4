"""Allocate devices to all containers of a pod, or to none.

Theory of operation. This module only decides. It does no I/O, makes no RPC and takes no lock.

In:  a ``PodAllocation``: the pod, the plugins' endpoints and device lists, the ledger (which
     container uses which devices), NUMA affinities, and what the kubelet knows at admission
     (``AdmissionContext``).
Out: the pod's draft: the devices to allocate and the plugin's response, per container and
     resource. Or ``Rejected``, with reason and message for the pod status.

``allocate_container`` is a generator: it yields ``PreferenceWanted`` or ``AllocateWanted``.
The caller releases its lock, makes the RPC and takes the lock again. Then the caller sends the
response, or throws the error, into the generator. During the RPC, other pods can be admitted and
device lists can change. Therefore chosen devices are reserved in the ledger before Allocate is
called, and device lists are read again after every response.

Invariants:

* A device that another pod uses is not chosen (except with quirk Q25).
* Nothing is committed here: the caller commits the draft when the whole pod is allocated.
* A failed admission leaves no devices in use (except with quirk Q4 or after an interrupt).

A quirk is a kubelet bug that tests can enable, such as Q4 (``versions.quirks`` lists all quirks).

For each requested resource, the first case that applies decides (``_is_needed``). The order of the
cases is that of the kubelet, because the order decides which message a rejection has. ``Rules`` has
the differences between kubelet versions.

1. The container has a different number of devices than it requests: reject.
2. A restarted kubelet does not know all pods yet, and the container is running or is a
   finished init container: nothing to do.
3. The container requests 0 devices: nothing to do.
4. The resource is not registered, none of its devices is healthy, or a device of the container
   is unhealthy: reject.
5. The container already has its devices: nothing to do.
6. In all other cases: select and reserve devices, call Allocate once, and record the first
   container response.

Devices of an ordinary init container join a pool. Later containers take from this pool first.
App containers and sidecars remove their devices from the pool (``_update_reusable``). CPUs and
memory are allocated after the devices.

Failures (``all_or_nothing``): plugin and request errors become ``Rejected``, and the devices of the
pod's draft are freed. An interrupt such as Ctrl-C can stop the generator in the middle of a change.
Then nothing is freed here, and the caller must call ``Ledger.withdraw`` with the draft.

The module needs no gRPC and no threads, so the kubelet, replays and tests run the same code.
Follows ``Allocate`` and ``allocateContainerResources`` (manager.go, v1.32).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence, Set

import attrs

from devicemanager.core import bitset, messages
from devicemanager.core.allocation.rules import Rules
from devicemanager.core.allocation.selection import (
    AllocateAnswer,
    AllocateWanted,
    Answer,
    Pick,
    PreferenceError,
    Selection,
    Wanted,
    select,
)
from devicemanager.core.devices import WITHOUT_TOPOLOGY
from devicemanager.core.endpoints import Endpoints
from devicemanager.core.errors import (
    AllocationError,
    EndpointError,
    KubeletPanic,
    RequestError,
)
from devicemanager.core.ids import ContainerName, DeviceId, ResourceName
from devicemanager.core.inventory import EMPTY, DeviceList
from devicemanager.core.ledger import AllocatedDevices, DevicesPerNuma, Draft, Ledger
from devicemanager.core.node import Node
from devicemanager.core.pods import Container, Pod
from devicemanager.core.providers.provider import HintProviders
from devicemanager.core.rejection import Rejected, rejected_by_allocation
from devicemanager.core.topology import Hint, NumaTopology, ProviderHints, TopologyPolicy

Reusable = dict[ResourceName, frozenset[DeviceId]]
"""Devices of ordinary init containers that later containers of the pod may reuse, by resource (the
kubelet's ``devicesToReuse``)."""

NO_AFFINITY = Hint(None, True)

_RULES = Rules()
_NO_NODES = TopologyPolicy(NumaTopology.up_to(0))

Affinities = dict[ContainerName, Hint]
"""Topology affinity of each container, by container name. The mask of the hint is the set of NUMA
nodes; a mask of None means that the container has no affinity."""


class NoContainerResponse(AllocationError):
    """Error for an AllocateResponse without container responses."""


@attrs.frozen
class AdmissionContext:
    """Facts about a pod's containers that the kubelet knows when it admits the pod.

    The defaults are for a kubelet that has not restarted.
    """

    sources_ready: bool = True
    """True if the kubelet knows all pods of the node; False while a restarted kubelet still learns
    them."""
    running: frozenset[ContainerName] = frozenset()
    """Names of the pod's containers that the runtime reports as running."""
    finished: frozenset[ContainerName] = frozenset()
    """Names of the pod's init containers that have run to completion."""

    def needs_nothing(self, container: ContainerName, rules: Rules) -> bool:
        """True if the kubelet allocates no devices to the container, because the container ran
        before a kubelet restart. Always False if ``sources_ready`` is True."""
        if self.sources_ready:
            return False
        if container in self.running:
            return rules.running_need_nothing
        # Q5: kubelets require devices for finished init containers again, and the pod dies.
        return container in self.finished and "Q5" not in rules.quirks


@attrs.frozen(eq=False, repr=False)
class ResourceSnapshot:
    """State of one device resource just before an admission chooses devices of the resource."""

    request: int
    devices: DeviceList
    in_use: int
    """Devices that cannot be chosen because they are in use, as a bit set."""
    own: int = 0
    """Devices in ``in_use`` that containers of the same pod use, as a bit set."""
    allocated: frozenset[DeviceId] = frozenset()
    """IDs of the devices that the container already had when this admission began."""


@attrs.define(eq=False, repr=False)
class Step:
    """Record of one decision of an admission, from which the explanation is built."""

    container: ContainerName | None
    """Name of the container; None for the pod as a whole."""
    snapshots: Mapping[ResourceName, ResourceSnapshot]
    hints: Sequence[ProviderHints] | None = None
    """The hints of each hint provider; None if no hints were computed."""
    error: str | None = None


@attrs.define(eq=False, repr=False)
class PodAllocation:
    """Inputs and outcome of one pod's allocation. The outcome is complete when the generator of
    ``admit_pod`` has returned."""

    pod: Pod
    endpoints: Endpoints
    ledger: Ledger
    context: AdmissionContext = AdmissionContext()
    pick: Pick = bitset.lowest
    hint_providers: HintProviders = attrs.field(factory=HintProviders)
    node: Node = attrs.field(factory=Node)
    draft: Draft = attrs.field(init=False)
    affinities: Affinities = attrs.field(factory=dict)
    reusable: Reusable = attrs.field(factory=dict)
    steps: list[Step] = attrs.field(factory=list)
    known_before: tuple[ContainerName, frozenset[ResourceName]] | None = None
    """Name of the first container that requests devices, and the device resources that it requests.
    ``note_known`` sets this field. None without quirk Q10."""
    used_providers: bool = False
    """True once a hint provider has allocated CPUs or memory to the pod."""
    placed: bool = False
    """True while the sum of all requests on the node includes the pod (``Node.place``)."""
    policy: TopologyPolicy = attrs.field(default=_NO_NODES, kw_only=True)
    """The topology manager's policy when this allocation began."""
    rules: Rules = attrs.field(default=_RULES, kw_only=True)

    def __attrs_post_init__(self) -> None:
        self.draft = Draft(self.pod.uid)

    def is_device_resource(self, resource: ResourceName) -> bool:
        """True if the resource has a device list or one of its devices is in use
        (``isDevicePluginResource``, v1.32)."""
        return resource in self.endpoints or self.ledger.is_in_use(resource)

    @property
    def needs_devices(self) -> bool:
        """True if any container of the pod requests devices."""
        return any(self.requests(container) for container, _ in self.pod.all_containers())

    def requests(self, container: Container) -> Mapping[ResourceName, int]:
        """Return the number of devices that a container requests, by resource. The resources are
        sorted by name."""
        first, known = self.known_before or (None, frozenset())
        return {
            resource: container.limits[resource]
            for resource in sorted(container.limits)
            if self.is_device_resource(resource) or (container.name == first and resource in known)
        }

    def note_known(self) -> None:
        """Store in ``known_before`` which container is the first to request devices, and which
        device resources it requests.

        Must be called before devices of ended pods are freed: a resource without a device list is a
        device resource only while a device is in use (``allocateContainerResources``, v1.36).
        """
        for container, _ in self.pod.all_containers():
            if requests := self.requests(container):
                self.known_before = container.name, frozenset(requests)
                return

    def snapshot(
        self, requests: Mapping[ResourceName, int], container: ContainerName | None = None
    ) -> dict[ResourceName, ResourceSnapshot]:
        """Return the state of each requested resource, just before a container gets its devices.

        Devices that the container may reuse do not count as in use. If ``container`` is None, the
        result is the state for the pod as a whole, and no device counts as reusable.
        """
        snapshots = {}
        for resource, request in requests.items():
            devices = self.endpoints.devices(resource) or EMPTY
            in_use = self.ledger.in_use(resource, devices.device_index)
            # The pod's own devices are looked up only if it has any: most pods have none yet.
            if self.draft.reserved or self.pod.uid in self.ledger:
                snapshots[resource] = self._snapshot_of_user(
                    container, resource, request, devices, in_use
                )
            else:
                snapshots[resource] = ResourceSnapshot(request, devices, in_use)
        return snapshots

    def _snapshot_of_user(
        self,
        container: ContainerName | None,
        resource: ResourceName,
        request: int,
        devices: DeviceList,
        in_use: int,
    ) -> ResourceSnapshot:
        """Return the snapshot of one resource for a pod that already uses devices."""
        bits = devices.device_index.bits
        own = bits(self.ledger.allocated_to_pod(self.pod.uid, resource))
        for ids in self.draft.reserved.get(resource, ()):
            own |= bits(ids)
        allocated: frozenset[DeviceId] = frozenset()
        if container is not None:
            allocated = self.ledger.allocated(self.pod.uid, container, resource) or allocated
            # For this container, the reusable devices are free: it takes them first.
            own &= ~bits(self.reusable.get(resource, ()))
            in_use &= ~bits(self.reusable.get(resource, ()))
        return ResourceSnapshot(request, devices, in_use, own, allocated)

    def with_draft(self, container: ContainerName) -> Mapping[ResourceName, AllocatedDevices]:
        """Return a container's devices by resource: the committed devices and the devices in
        ``draft``."""
        return {
            **self.ledger.container(self.pod.uid, container),
            **self.draft.allocated.get(container, {}),
        }


AllocationSteps = Generator[Wanted, Answer, None]


def allocate_container(
    allocation: PodAllocation,
    container: Container,
    is_init: bool,
    requests: Mapping[ResourceName, int] | None = None,
) -> AllocationSteps:
    """Allocate devices, then CPUs and memory, to one container.

    ``requests`` has the number of devices to allocate, by resource. None stands for
    ``allocation.requests(container)``. The devices are stored in ``allocation.draft``.
    """
    if requests is None:
        requests = allocation.requests(container)
    for resource, required in requests.items():
        yield from _allocate_resource(allocation, container, resource, required)
    _update_reusable(allocation, container, is_init)
    # The topology manager calls its providers in the order in which the kubelet adds them:
    # the device manager comes first (``allocateAlignedResources``, v1.32).
    affinity = allocation.affinities.get(container.name, NO_AFFINITY).mask
    if allocation.hint_providers.allocate(allocation.pod, container, affinity):
        allocation.used_providers = True


def _update_reusable(allocation: PodAllocation, container: Container, is_init: bool) -> None:
    """Update the pool of devices that later containers of the pod may reuse.

    Devices of an ordinary init container join the pool. Devices of an app container or a
    restartable init container leave the pool, because these containers run until the pod ends.
    """
    keeps = not is_init or (container.restartable and allocation.rules.sidecars_keep)
    if keeps and not allocation.reusable:
        return
    for resource, allocated in allocation.with_draft(container.name).items():
        pool = allocation.reusable.get(resource, frozenset())
        allocation.reusable[resource] = pool - allocated.ids if keeps else pool | allocated.ids


def _allocate_resource(
    allocation: PodAllocation, container: Container, resource: ResourceName, required: int
) -> AllocationSteps:
    if not _is_needed(allocation, container, resource, required):
        return
    selection = Selection(
        resource=resource,
        needed=required,
        affinity=allocation.affinities.get(container.name, NO_AFFINITY).mask,
        endpoints=allocation.endpoints,
        ledger=allocation.ledger,
        draft=allocation.draft,
        pick=allocation.pick,
    )
    chosen = yield from select(selection, allocation.reusable.get(resource, frozenset()))
    response = yield from _call_allocate(allocation, resource, chosen)
    # Read the list again: it may have changed during the RPC, and the kubelet, too, looks
    # up NUMA nodes only after Allocate has returned.
    listed = allocation.endpoints.devices(resource) or EMPTY
    if "Q33" in allocation.rules.quirks:
        check_listed(listed, chosen)
    devices = by_numa_node(listed, chosen, allocation.rules.no_topology_node)
    allocation.ledger.record(
        allocation.draft, container.name, resource, AllocatedDevices(devices, response)
    )


def _is_needed(
    allocation: PodAllocation, container: Container, resource: ResourceName, required: int
) -> bool:
    """Return True if a container still needs devices of a resource. Raises ``AllocationError`` if
    the container cannot get the devices.

    The checks and their order are those of ``devicesToAllocate`` (v1.32). The order decides
    which message a rejection has, and which containers are not rejected at all. A container
    that ran before a kubelet restart needs no devices, although its plugin has not
    re-registered. A container that already has its devices is still rejected if one of them
    is unhealthy.
    """
    allocated = allocation.ledger.allocated(allocation.pod.uid, container.name, resource)
    # Checked first, as in the kubelet: even a container that ran before a restart is rejected.
    if allocated is not None and len(allocated) != required:
        raise AllocationError(
            messages.CHANGED_REQUEST.format(
                pod=allocation.pod.uid,
                container=container.name,
                resource=resource,
                allocated=len(allocated),
                required=required,
            )
        )
    rules, devices = allocation.rules, allocation.endpoints.devices(resource)
    if not rules.checks_health:
        return _is_needed_unchecked(devices, allocated, resource, required)
    # This check precedes those of the plugin: just after a kubelet restart no plugin has
    # re-registered, and running containers must not be rejected for that.
    if allocation.context.needs_nothing(container.name, rules):
        return False
    if required == 0 and "Q16" not in rules.quirks:
        return False  # Q16: kubelets reject a limit of 0 if no device is healthy
    if devices is None:
        raise _unfit(messages.UNREGISTERED, resource)
    if not devices.healthy:
        raise _unfit(messages.NO_HEALTHY, resource)
    if allocated is not None and not _all_healthy(devices, allocated):
        raise _unfit(messages.ALLOCATED_UNHEALTHY, resource)
    return allocated is None and required > 0


def _is_needed_unchecked(
    devices: DeviceList | None,
    allocated: frozenset[DeviceId] | None,
    resource: ResourceName,
    required: int,
) -> bool:
    """True if a container still needs devices, for kubelets without the fix k/k#116376. Such
    kubelets accept unhealthy allocated devices."""
    if allocated is not None or not required:
        return False
    if devices is None:
        raise _unfit(messages.UNREGISTERED_BEFORE, resource)
    return True


def _unfit(text: str, resource: ResourceName) -> AllocationError:
    return AllocationError(text.format(resource=resource), "admission_checks_health")


def _all_healthy(devices: DeviceList, ids: frozenset[DeviceId]) -> bool:
    # A device that the plugin no longer lists has no bit, and counts as unhealthy.
    bits = devices.device_index.bits(ids)
    return bits.bit_count() == len(ids) and not bits & ~devices.healthy


def _call_allocate(
    allocation: PodAllocation, resource: ResourceName, chosen: frozenset[DeviceId]
) -> Generator[Wanted, Answer, bytes]:
    """Request a call of Allocate and return its first container response, serialized."""
    endpoint = allocation.endpoints.serving(resource)
    # The plugin can have disconnected since the checks, during GetPreferredAllocation.
    if endpoint is None:
        raise AllocationError(messages.UNKNOWN_PLUGIN.format(resource=resource))
    try:
        answer = yield AllocateWanted(resource, endpoint.id, endpoint.name, tuple(sorted(chosen)))
    except EndpointError:
        # After a failed Allocate the kubelet rebuilds its set of devices in use from the
        # committed entries. This frees leaked devices (Q4) and devices of other drafts (Q25).
        allocation.ledger.count_committed_only()
        raise
    if not isinstance(answer, AllocateAnswer):
        raise TypeError(f"invalid response to Allocate: {answer!r}: expected an AllocateAnswer")
    if not answer.responses:
        reply = allocation.rules.empty_reply
        raise NoContainerResponse(messages.NO_CONTAINER_RESPONSE.format(reply=reply))
    # The request has one container, so the kubelet ignores further responses.
    return answer.responses[0]


def check_listed(devices: DeviceList, ids: Set[DeviceId]) -> None:
    """Raise KubeletPanic if one of the devices ``ids`` is not in the device list (quirk Q33).

    The kubelet reads the topology of such a device through a nil pointer
    (``generateDeviceTopologyHints``, ``allocateContainerResources``, v1.37).
    """
    if ids - devices.device_index.index.keys():
        raise KubeletPanic(
            "panic: runtime error: invalid memory address or nil pointer dereference (Q33)"
        )


def by_numa_node(
    devices: DeviceList, ids: frozenset[DeviceId], no_topology_node: int = WITHOUT_TOPOLOGY
) -> DevicesPerNuma:
    """Return the device IDs by NUMA node ID. The node IDs and the device IDs are sorted.

    Devices without topology are under ``no_topology_node``.
    """
    device_index = devices.device_index
    nodes: dict[int, list[DeviceId]] = {}
    for id_ in sorted(ids):
        number = device_index.index.get(id_)
        # The plugin can have sent a list without the device during Allocate. Without quirk Q33, the
        # device is then recorded as a device without topology.
        numa = () if number is None else device_index.numa[number]
        # As in the kubelet, a device whose topology repeats a node is listed twice there.
        for node in sorted(numa or ()) or (no_topology_node,):
            nodes.setdefault(node, []).append(id_)
    return {node: tuple(nodes[node]) for node in sorted(nodes)}


def all_or_nothing(
    allocation: PodAllocation, steps: AllocationSteps
) -> Generator[Wanted, Answer, None]:
    """Run the allocation ``steps``; after a failure, free all devices that the steps reserved.

    Raises ``Rejected`` with the reason and message for the pod's status.
    """
    try:
        yield from steps
    except Rejected:
        reject(allocation)
        raise
    except (EndpointError, RequestError) as error:
        if _leaks(allocation, error):
            allocation.ledger.leak(allocation.draft)
        reject(allocation)
        raise rejected_by_allocation(error) from error
    except (GeneratorExit, Exception):
        # KeyboardInterrupt is not caught: it can arrive in the middle of a change, which
        # cannot be undone step by step. The caller must withdraw the draft.
        give_back(allocation)
        raise


def reject(allocation: PodAllocation) -> None:
    """Free what a rejected pod has reserved. With quirk Q31, the pod keeps the devices for which
    Allocate has returned."""
    if "Q31" not in allocation.rules.quirks:
        give_back(allocation)
        return
    # ``drop`` frees all reserved devices. ``enter`` then allocates those that have a response.
    allocation.ledger.drop(allocation.draft)
    allocation.ledger.enter(allocation.draft)
    _remove_from_node(allocation)


def give_back(allocation: PodAllocation) -> None:
    """Free everything that an allocation has reserved but not committed. A second call has no
    effect."""
    allocation.ledger.drop(allocation.draft)
    if allocation.draft:
        # The kubelet has already recorded the drafted devices. It frees them with the rejected
        # pod, and then rebuilds its set of devices in use.
        allocation.ledger.count_committed_only()
    _remove_from_node(allocation)


def _remove_from_node(allocation: PodAllocation) -> None:
    if allocation.placed:
        allocation.node.remove(allocation.pod.uid)
        allocation.placed = False
    if allocation.used_providers:
        allocation.hint_providers.release(allocation.pod.uid)
        allocation.used_providers = False


def _leaks(allocation: PodAllocation, error: Exception) -> bool:
    """True if the chosen devices stay in use after a failed allocation (quirk Q4).

    This happens if GetPreferredAllocation failed, or if the AllocateResponse had no container
    responses. The devices become free when devices of any pod are freed, or when a later call of
    Allocate fails.
    """
    quirks = allocation.rules.quirks
    # If the draft has devices, freeing those of the rejected pod ends the leak immediately.
    if "Q4" not in quirks or (allocation.draft and "Q31" not in quirks):
        return False
    return isinstance(error, (PreferenceError, NoContainerResponse))

"""Allocation of a pod's containers, all or nothing.

``allocate_container`` is a generator: it yields what it wants asked of a plugin
(``PreferenceWanted``, ``AllocateWanted``), gets the answer sent in or the plugin's
``RpcError`` thrown in, and writes what the pod is about to hold into its draft. The shell
holds its lock only while the generator runs, never over an RPC. On any rejection
``all_or_nothing`` drops the draft, so the ledger is as it was.

Follows ``Allocate`` and ``allocateContainerResources`` of
pkg/kubelet/cm/devicemanager/kubelet/manager.go (v1.32).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

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
    RequestError,
)
from devicemanager.core.ids import ContainerName, DeviceId, ResourceName
from devicemanager.core.inventory import EMPTY, DeviceList
from devicemanager.core.ledger import AllocatedDevices, DevicesPerNuma, Draft, Ledger
from devicemanager.core.node import Node
from devicemanager.core.pods import Container, Pod
from devicemanager.core.providers.registry import HintProviders
from devicemanager.core.rejection import Rejected, rejected_by_allocation
from devicemanager.core.topology import Hint, NumaTopology, ProviderHints, TopologyPolicy

Reusable = dict[ResourceName, frozenset[DeviceId]]
"""Per resource, what ordinary init containers of the pod may hand on."""

NO_AFFINITY = Hint(None, True)

_RULES = Rules()
_NO_NODES = TopologyPolicy(NumaTopology.up_to(0))

Affinities = dict[ContainerName, Hint]
"""Per container, the hint it was aligned to; its mask is None for no affinity."""


class NoContainerResponse(AllocationError):
    """A reply to Allocate that names no container."""


@attrs.frozen
class AdmissionContext:
    """What the shell knows about the pod and the kubelet at the time of admission."""

    sources_ready: bool = True
    """False while a restarted kubelet still learns which pods there are."""
    running: frozenset[ContainerName] = frozenset()
    """Containers of the pod that the runtime reports running."""
    finished: frozenset[ContainerName] = frozenset()
    """Init containers that have run to completion."""

    def needs_nothing(self, container: ContainerName, rules: Rules) -> bool:
        """A container that started before a kubelet restart already has its devices."""
        if self.sources_ready:
            return False
        if container in self.running:
            return rules.running_need_nothing
        # Q5: finished init containers were asked for devices again, and the pod killed.
        return container in self.finished and "Q5" not in rules.quirks


@attrs.frozen(eq=False, repr=False)
class ResourceSnapshot:
    """What one step of an admission saw of one resource before it chose."""

    request: int
    devices: DeviceList
    in_use: int
    """Devices that could not be chosen because they are in use."""
    own: int = 0
    """Those of them that other containers of the pod have."""
    held: frozenset[DeviceId] = frozenset()
    """What the container had already."""


@attrs.define(eq=False, repr=False)
class Step:
    """One decision, written down while it is made; explanations are built from it."""

    container: ContainerName | None
    """None for the pod as a whole."""
    seen: Mapping[ResourceName, ResourceSnapshot]
    hints: Sequence[ProviderHints] | None = None
    """What each provider said; None where none was asked."""
    error: str | None = None


@attrs.define(eq=False, repr=False)
class PodAllocation:
    """One pod's allocation under way, and its outcome once the generator returned."""

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
    used_providers: bool = False
    """Whether it took something of the hint providers."""
    placed: bool = False
    """Whether it put the pod on the node."""
    policy: TopologyPolicy = attrs.field(default=_NO_NODES, kw_only=True)
    """The topology manager's, as it was when this began."""
    rules: Rules = attrs.field(default=_RULES, kw_only=True)

    def __attrs_post_init__(self) -> None:
        self.draft = Draft(self.pod.uid)

    def is_device_resource(self, resource: ResourceName) -> bool:
        """``isDevicePluginResource``: registered now, or holding an allocation."""
        return resource in self.endpoints or self.ledger.is_in_use(resource)

    def requests(self, container: Container) -> Mapping[ResourceName, int]:
        """The container's device requests, sorted by resource."""
        return {
            resource: container.limits[resource]
            for resource in sorted(container.limits)
            if self.is_device_resource(resource)
        }

    def see(
        self, requests: Mapping[ResourceName, int], container: ContainerName | None = None
    ) -> dict[ResourceName, ResourceSnapshot]:
        """What there is of the requested resources for a container, or None for the pod,
        as of now."""
        seen = {}
        for resource, request in requests.items():
            devices = self.endpoints.devices(resource) or EMPTY
            in_use = self.ledger.in_use(resource, devices.device_index)
            if self.draft.reserved or self.pod.uid in self.ledger:
                seen[resource] = self._see_own(container, resource, request, devices, in_use)
            else:
                seen[resource] = ResourceSnapshot(request, devices, in_use)
        return seen

    def _see_own(
        self,
        container: ContainerName | None,
        resource: ResourceName,
        request: int,
        devices: DeviceList,
        in_use: int,
    ) -> ResourceSnapshot:
        """As ``see``, for a pod that has devices already."""
        bits = devices.device_index.bits
        own = bits(self.ledger.allocated_to_pod(self.pod.uid, resource))
        for ids in self.draft.reserved.get(resource, ()):
            own |= bits(ids)
        held: frozenset[DeviceId] = frozenset()
        if container is not None:
            held = self.ledger.allocated(self.pod.uid, container, resource) or held
            own &= ~bits(self.reusable.get(resource, ()))
            in_use &= ~bits(self.reusable.get(resource, ()))
        return ResourceSnapshot(request, devices, in_use, own, held)

    def drafted(self, container: ContainerName) -> Mapping[ResourceName, AllocatedDevices]:
        """What this admission gave a container, over what it held before."""
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
    """Devices for one container, into the draft; then its share of everything else.
    ``requests`` are its device requests, if the caller has just computed them.

    The topology manager asks its providers in the order in which they were added: the
    device manager first (``allocateAlignedResources``, v1.32).
    """
    if requests is None:
        requests = allocation.requests(container)
    for resource, required in requests.items():
        yield from _allocate_resource(allocation, container, resource, required)
    _hand_on(allocation, container, is_init)
    affinity = allocation.affinities.get(container.name, NO_AFFINITY).mask
    if allocation.hint_providers.allocate(allocation.pod, container, affinity):
        allocation.used_providers = True


def _hand_on(allocation: PodAllocation, container: Container, is_init: bool) -> None:
    """Keep the pool of devices that later containers of the pod may reuse.

    What an ordinary init container holds joins it; what an app container or a
    restartable init container holds leaves it.
    """
    keeps = not is_init or (container.restartable and allocation.rules.sidecars_keep)
    if keeps and not allocation.reusable:
        return
    for resource, holding in allocation.drafted(container.name).items():
        pool = allocation.reusable.get(resource, frozenset())
        allocation.reusable[resource] = pool - holding.ids if keeps else pool | holding.ids


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
    response = yield from _ask(allocation, resource, chosen)
    # As listed now, not as chosen: the list may have changed while the plugin was asked.
    listed = allocation.endpoints.devices(resource) or EMPTY
    devices = by_numa_node(listed, chosen, allocation.rules.no_topology_node)
    allocation.ledger.record(
        allocation.draft, container.name, resource, AllocatedDevices(devices, response)
    )


def _is_needed(
    allocation: PodAllocation, container: Container, resource: ResourceName, required: int
) -> bool:
    """The checks of ``devicesToAllocate``, in its order; whether to go on.

    The order decides which text a pod is rejected with, and who is spared a rejection: a
    container that ran before the kubelet restarted is asked for nothing, although its plugin
    is not back yet; one that already has its devices is still rejected if one is unhealthy.
    """
    held = allocation.ledger.allocated(allocation.pod.uid, container.name, resource)
    if held is not None and len(held) != required:
        raise AllocationError(
            messages.CHANGED_REQUEST.format(
                pod=allocation.pod.uid,
                container=container.name,
                resource=resource,
                held=len(held),
                required=required,
            )
        )
    rules, devices = allocation.rules, allocation.endpoints.devices(resource)
    if not rules.checks_health:
        return _is_needed_unchecked(devices, held, resource, required)
    if allocation.context.needs_nothing(container.name, rules):
        return False
    if required == 0 and "Q16" not in rules.quirks:
        return False  # Q16: a limit of 0 was rejected when nothing was healthy
    if devices is None:
        raise _unfit(messages.UNREGISTERED, resource)
    if not devices.healthy:
        raise _unfit(messages.NO_HEALTHY, resource)
    if held is not None and not _all_healthy(devices, held):
        raise _unfit(messages.HELD_UNHEALTHY, resource)
    return held is None and required > 0


def _is_needed_unchecked(
    devices: DeviceList | None,
    held: frozenset[DeviceId] | None,
    resource: ResourceName,
    required: int,
) -> bool:
    """The same before k/k#116376: what a container holds is enough."""
    if held is not None or not required:
        return False
    if devices is None:
        raise _unfit(messages.UNREGISTERED_BEFORE, resource)
    return True


def _unfit(text: str, resource: ResourceName) -> AllocationError:
    return AllocationError(text.format(resource=resource), "admission_checks_health")


def _all_healthy(devices: DeviceList, ids: frozenset[DeviceId]) -> bool:
    bits = devices.device_index.bits(ids)
    return bits.bit_count() == len(ids) and not bits & ~devices.healthy


def _ask(
    allocation: PodAllocation, resource: ResourceName, chosen: frozenset[DeviceId]
) -> Generator[Wanted, Answer, bytes]:
    """One Allocate RPC for one container; its first response."""
    endpoint = allocation.endpoints.serving(resource)
    if endpoint is None:
        raise AllocationError(messages.UNKNOWN_PLUGIN.format(resource=resource))
    try:
        answer = yield AllocateWanted(resource, endpoint.id, endpoint.name, tuple(sorted(chosen)))
    except EndpointError:
        # The kubelet counts what is in use anew when a plugin fails.
        allocation.ledger.count_committed_only()
        raise
    if not isinstance(answer, AllocateAnswer):
        raise TypeError(f"the answer to Allocate is an AllocateAnswer, not {answer!r}")
    if not answer.responses:
        reply = allocation.rules.empty_reply
        raise NoContainerResponse(messages.NO_CONTAINER_RESPONSE.format(reply=reply))
    return answer.responses[0]


def by_numa_node(
    devices: DeviceList, ids: frozenset[DeviceId], no_topology_node: int = WITHOUT_TOPOLOGY
) -> DevicesPerNuma:
    """The ids under each NUMA node they are on, or ``no_topology_node``; all sorted."""
    device_index = devices.device_index
    nodes: dict[int, list[DeviceId]] = {}
    for id_ in sorted(ids):
        number = device_index.index.get(id_)
        numa = () if number is None else device_index.numa[number]
        for node in sorted(set(numa or ())) or (no_topology_node,):
            nodes.setdefault(node, []).append(id_)
    return {node: tuple(nodes[node]) for node in sorted(nodes)}


def all_or_nothing(
    allocation: PodAllocation, steps: AllocationSteps
) -> Generator[Wanted, Answer, None]:
    """Run ``steps``; on any failure give back what was reserved or taken.

    Raises ``Rejected`` with the reason and message of the pod's status.
    """
    try:
        yield from steps
    except Rejected:
        give_back(allocation)
        raise
    except (EndpointError, RequestError) as error:
        if _leaks(allocation, error):
            allocation.ledger.leak(allocation.draft)
        give_back(allocation)
        raise rejected_by_allocation(error) from error
    except (GeneratorExit, Exception):
        # Not an interrupt: it may have come in the middle of a change, so that nothing can
        # be taken back step by step. Whoever runs the steps has to withdraw the draft.
        give_back(allocation)
        raise


def give_back(allocation: PodAllocation) -> None:
    """Undo everything that is not committed."""
    allocation.ledger.drop(allocation.draft)
    if allocation.draft:
        # The reference had recorded this much, and frees it of the rejected pod.
        allocation.ledger.count_committed_only()
    if allocation.placed:
        allocation.node.remove(allocation.pod.uid)
        allocation.placed = False
    if allocation.used_providers:
        allocation.hint_providers.release(allocation.pod.uid)
        allocation.used_providers = False


def _leaks(allocation: PodAllocation, error: Exception) -> bool:
    """Q4: after a failed preference, or a reply without containers, the devices chosen so
    far stay in use: until a pod that held devices is freed, such as this one if it had
    been given some, or until an Allocate fails."""
    if "Q4" not in allocation.rules.quirks or allocation.draft:
        return False
    return isinstance(error, (PreferenceError, NoContainerResponse))

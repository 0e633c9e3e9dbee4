"""Facts of one admission: for each step the available devices, the hints and the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import islice

import attrs

from devicemanager.core import bitset
from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.inventory import DeviceList
from devicemanager.core.ledger import AllocatedByContainer
from devicemanager.core.pods import Pod
from devicemanager.core.topology import (
    Hint,
    Hints,
    NumaTopology,
    PolicyName,
    ProviderHints,
    TopologyPolicy,
)
from devicemanager.core.topology.merging import (
    flatten_hints,
    only_single_nodes,
    ranked_narrowest,
    ranked_unpreferred,
)
from devicemanager.core.topology.numa import nodes_of

SHOWN_CANDIDATES = 3


class DeviceState(Enum):
    """State of a device in one step of an admission."""

    FREE = "free"
    IN_USE = "in use"
    UNHEALTHY = "unhealthy"
    CHOSEN = "chosen"
    OWN = "of this pod's other containers"


@attrs.frozen(eq=False)
class ResourceExplanation:
    """Facts about one device resource in one step of an admission. A step decides about one
    container, or about the pod as a whole.

    A set of devices is an integer: bit ``n`` stands for the device with number ``n`` in
    ``devices.device_index``.
    """

    resource: ResourceName
    request: int
    """Number of devices requested in this step."""
    devices: DeviceList
    in_use: int = 0
    """The set of devices that this step could not choose because they were in use."""
    chosen: int = 0
    """The set of devices that this step chose, or that the container already had."""
    own: int = 0
    """The set of devices that other containers of the pod already had."""

    def states(self, bits: int) -> list[tuple[int, DeviceState]]:
        """Return a pair for each device in the set ``bits``: its number in the device list, and its
        state. The pairs are sorted by number."""
        # Python sets, because testing the bits of a large integer one by one is quadratic.
        chosen, own, in_use = (
            frozenset(bitset.numbers(each & bits)) for each in (self.chosen, self.own, self.in_use)
        )

        def state(number: int) -> DeviceState:
            if number in chosen:
                return DeviceState.CHOSEN
            if number in own:
                return DeviceState.OWN
            if number in in_use:
                return DeviceState.IN_USE
            healthy = self.devices.is_healthy(number)
            return DeviceState.FREE if healthy else DeviceState.UNHEALTHY

        return [(number, state(number)) for number in bitset.numbers(bits)]

    @property
    def free(self) -> int:
        """The set of devices that could be chosen in this step, including the chosen devices."""
        return self.devices.healthy & ~self.in_use

    @property
    def chosen_ids(self) -> tuple[DeviceId, ...]:
        """The sorted IDs of the devices that this step chose or that the container already had."""
        return self.devices.device_index.select(self.chosen)

    def places(self, topology: NumaTopology) -> dict[int | None, int]:
        """Return a dict from the ID of each NUMA node to the set of devices on this node. The key
        None has the devices that are on no node.

        A device with several nodes is in the set of each of its nodes.
        """
        per_node = self.devices.device_index.per_node
        # A device may name only nodes that this machine does not have. It then counts as being on
        # no node.
        places: dict[int | None, int] = {
            node: per_node.get(node, 0) for node in topology.nodes if per_node.get(node, 0)
        }
        somewhere = bitset.union(places.values())
        elsewhere = (1 << len(self.devices.device_index.ids)) - 1 & ~somewhere
        return places | ({None: elsewhere} if elsewhere else {})

    def free_per_node(self, topology: NumaTopology) -> dict[int | None, int]:
        """Return a dict from the ID of each NUMA node to the number of free devices on this node.
        The key None has the number of free devices that are on no node."""
        free = self.free
        return {node: (bits & free).bit_count() for node, bits in self.places(topology).items()}


class AlignmentFault(Enum):
    """Reason why one resource, or all resources together, cannot be aligned as preferred."""

    FITS_NOWHERE = "fits nowhere"
    """All NUMA nodes together have too few free devices."""
    SPREAD = "spread"
    """The request fits only on more nodes than it would need if no device were in use."""
    WIDE = "wide"
    """The request needs several nodes, but the policy allows only one node."""
    NO_COMMON_NODES = "no common nodes"
    """Each resource alone can be aligned, but not all of them to the same nodes."""


@attrs.frozen
class MergeExplanation:
    """The topology hints of all resources, and the policy's decision about them."""

    policy: PolicyName
    hints: Mapping[str, Hints | None]
    affinity: Hint
    admitted: bool
    candidates: tuple[Hint, ...] = ()
    """Best possible results of the merge, at most ``SHOWN_CANDIDATES``, best first. Filled only if
    ``affinity`` is not preferred; then the candidates are not preferred either."""

    def aligned_to(self, resource: str) -> tuple[tuple[int, ...], ...]:
        """Return the alternative sets of NUMA nodes to which the policy could align the resource if
        it were the only resource. Each set is a tuple of node IDs."""
        hints = self.hints[resource] or ()
        return tuple(
            nodes_of(hint.mask)
            for hint in hints
            if hint.mask is not None and hint.preferred and self._allows(hint.mask)
        )

    def narrowest(self, resource: str) -> tuple[int, ...]:
        """Return the smallest set of NUMA nodes on which the request for the resource fits, as node
        IDs. Returns an empty tuple if the request fits on no set."""
        # Providers return hints in order of size, so the first one has the fewest nodes.
        for hint in self.hints[resource] or ():
            if hint.mask is not None:
                return nodes_of(hint.mask)
        return ()

    @property
    def faults(self) -> Mapping[str, AlignmentFault]:
        """Reasons why resources cannot be aligned, by resource; empty if the result is
        preferred."""
        if self.affinity.preferred:
            return {}
        # Hints that are None fit any node, so they explain nothing.
        aligned = {name: hints for name, hints in self.hints.items() if hints is not None}
        # A resource that cannot be aligned even alone explains the result. If each resource can
        # be aligned alone, the combination of all of them is the reason.
        alone = {
            name: fault for name, hints in aligned.items() if (fault := self._fault_alone(hints))
        }
        return alone or dict.fromkeys(aligned, AlignmentFault.NO_COMMON_NODES)

    def _fault_alone(self, hints: Hints) -> AlignmentFault | None:
        preferred = [hint for hint in hints if hint.preferred]
        if not hints:
            return AlignmentFault.FITS_NOWHERE
        if not preferred:
            return AlignmentFault.SPREAD
        if all(hint.mask is not None and not self._allows(hint.mask) for hint in preferred):
            return AlignmentFault.WIDE
        return None

    def _allows(self, mask: int) -> bool:
        return self.policy is not PolicyName.SINGLE_NUMA_NODE or mask.bit_count() == 1


def explain_merge(
    policy: TopologyPolicy, provider_hints: Sequence[ProviderHints]
) -> MergeExplanation:
    """Merge the providers' hints under a policy, and return the result with its reasons."""
    affinity, admitted = policy.merge(provider_hints)
    named = {name: hints for provider in provider_hints for name, hints in provider.items()}
    candidates: tuple[Hint, ...] = ()
    if policy.asks_for_hints and not affinity.preferred:
        hints = flatten_hints(provider_hints)
        if policy.name is PolicyName.SINGLE_NUMA_NODE:
            # The policy drops wider hints before it merges, so they cannot be part of a result.
            hints = only_single_nodes(hints)
        ranked = (
            ranked_narrowest(policy.topology, hints)
            if policy.narrowest
            else ranked_unpreferred(policy.topology, hints, policy.options.prefer_closest)
        )
        candidates = tuple(Hint(mask, False) for mask in islice(ranked, SHOWN_CANDIDATES))
    return MergeExplanation(policy.name, named, affinity, admitted, candidates)


@attrs.frozen(eq=False)
class StepExplanation:
    """One step of an admission: the decision for a container or, only in pod scope, for the pod as
    a whole."""

    container: str | None
    """The container's name; None for the pod as a whole."""
    resources: tuple[ResourceExplanation, ...] = ()
    merge: MergeExplanation | None = None
    """The merge of hints; None if this step merges no hints. With policy ``none``, no step merges
    hints. With pod scope, only the step of the pod as a whole merges hints."""
    error: str | None = None
    """The kubelet's message if the container's allocation failed; otherwise None."""
    unknown: Mapping[ResourceName, int] = attrs.field(factory=dict)
    """Requested numbers of devices, by resource, for resources that no plugin has registered. The
    container runs without them."""


@attrs.frozen
class Holder:
    """Container of another pod that has devices of a resource which the explained pod requests."""

    pod: PodUid
    name: str
    """``namespace/name`` of the pod, or its UID if the name is unknown."""
    container: ContainerName
    resource: ResourceName
    ids: tuple[DeviceId, ...]


@attrs.frozen(eq=False)
class AdmissionExplanation:
    """Explanation of one pod's admission: all steps and the result."""

    pod: Pod
    policy: TopologyPolicy
    steps: tuple[StepExplanation, ...] = ()
    reason: str = ""
    """The kubelet's reason for a rejection; empty if the pod was admitted."""
    message: str = ""
    allocated: Mapping[PodUid, AllocatedByContainer] = attrs.field(factory=dict, repr=False)
    """Allocations of all pods, by pod UID. For a rejected pod, they are recorded at the rejection.
    For an admitted pod, they are recorded when its explanation is first requested."""
    name_of: Callable[[PodUid], str] = attrs.field(default=str, repr=False)
    since: str = ""
    """Sentence that says which kubelet versions reject the pod. Empty if all versions reject the
    pod, and for an admitted pod."""

    @property
    def admitted(self) -> bool:
        """True if the pod was admitted."""
        return not self.reason

    @property
    def holders(self) -> tuple[Holder, ...]:
        """Containers of other pods that used devices of the requested resources during the
        admission, sorted by pod name."""
        in_use = self._in_use()
        names = {pod: self.name_of(pod) for pod in self.allocated if pod != self.pod.uid}
        return tuple(
            Holder(pod, names[pod], container, resource, ids)
            for pod in sorted(names, key=lambda pod: names[pod])
            for container, by_resource in self.allocated[pod].items()
            for resource in sorted(in_use.keys() & by_resource.keys())
            if (ids := tuple(sorted(by_resource[resource].ids & in_use[resource])))
        )

    def _in_use(self) -> dict[ResourceName, frozenset[DeviceId]]:
        """Return the IDs of the devices that were in use in any step, by resource."""
        found: dict[ResourceName, frozenset[DeviceId]] = {}
        for one in (one for step in self.steps for one in step.resources):
            ids = one.devices.device_index.select(one.in_use)
            found[one.resource] = found.get(one.resource, frozenset()).union(ids)
        return found

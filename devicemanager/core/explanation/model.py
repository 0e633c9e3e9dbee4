"""Why a pod got these devices, or none: the facts of one admission, as data.

Made from values that the admission had anyway, so it costs next to nothing until
somebody reads it. Everything derived is computed on demand.
"""

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
    """What a device was when the decision was made, and whether it was chosen."""

    FREE = "free"
    IN_USE = "in use"
    UNHEALTHY = "unhealthy"
    CHOSEN = "chosen"
    OWN = "of this pod's other containers"


@attrs.frozen(eq=False)
class ResourceExplanation:
    """One device resource as one step of the admission saw it. Sets are integers over
    the numbers of ``devices.numbering``."""

    resource: ResourceName
    request: int
    """Devices asked for in this step."""
    devices: DeviceList
    in_use: int = 0
    """Devices that were in use before this step, so that it could not choose them."""
    chosen: int = 0
    """Devices this step was given, or had from the start."""
    own: int = 0
    """Devices that other containers of the pod had before this step."""

    def states(self, bits: int) -> list[tuple[int, DeviceState]]:
        """The devices of a set: their numbers, ascending, and what each was."""
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
        """The set of devices that could have been chosen; the chosen ones are in it."""
        return self.devices.healthy & ~self.in_use

    @property
    def chosen_ids(self) -> tuple[DeviceId, ...]:
        """Ids of the chosen devices, sorted."""
        return self.devices.device_index.select(self.chosen)

    def places(self, topology: NumaTopology) -> dict[int | None, int]:
        """NUMA node id → its devices; ``None`` holds those on no node of the machine.

        A device with several nodes stands under each.
        """
        per_node = self.devices.device_index.per_node
        places: dict[int | None, int] = {
            node: per_node.get(node, 0) for node in topology.nodes if per_node.get(node, 0)
        }
        somewhere = bitset.union(places.values())
        elsewhere = (1 << len(self.devices.device_index.ids)) - 1 & ~somewhere
        return places | ({None: elsewhere} if elsewhere else {})

    def free_per_node(self, topology: NumaTopology) -> dict[int | None, int]:
        """NUMA node id (``None``: no node) → how many devices were free there."""
        free = self.free
        return {node: (bits & free).bit_count() for node, bits in self.places(topology).items()}


class Fault(Enum):
    """What kept one resource, or all of them together, from a preferred alignment."""

    FITS_NOWHERE = "fits nowhere"
    """Not enough free devices, wherever they are."""
    SPREAD = "spread"
    """Free devices lie on more nodes than the request would need were none in use."""
    WIDE = "wide"
    """The request needs more than one node, and the policy allows one."""
    NO_COMMON_NODES = "no common nodes"
    """Each resource could be aligned alone, but not all to the same nodes."""


@attrs.frozen
class MergeExplanation:
    """Hints per resource, and what the policy made of them."""

    policy: PolicyName
    hints: Mapping[str, Hints | None]
    affinity: Hint
    admitted: bool
    candidates: tuple[Hint, ...] = ()
    """The best few results the policy chose from, best first, if none was preferred."""

    def aligned_to(self, resource: str) -> tuple[tuple[int, ...], ...]:
        """The sets of nodes the resource alone could be aligned to, as the policy sees it."""
        hints = self.hints[resource] or ()
        return tuple(
            nodes_of(hint.mask)
            for hint in hints
            if hint.mask is not None and hint.preferred and self._allows(hint.mask)
        )

    def narrowest(self, resource: str) -> tuple[int, ...]:
        """The smallest set of nodes with enough of the resource; empty if there is none."""
        for hint in self.hints[resource] or ():
            if hint.mask is not None:
                return nodes_of(hint.mask)
        return ()

    @property
    def faults(self) -> Mapping[str, Fault]:
        """Resource → what kept it from being aligned. Empty if the result is preferred."""
        if self.affinity.preferred:
            return {}
        asked = {name: hints for name, hints in self.hints.items() if hints is not None}
        alone = {
            name: fault for name, hints in asked.items() if (fault := self._fault_alone(hints))
        }
        return alone or dict.fromkeys(asked, Fault.NO_COMMON_NODES)

    def _fault_alone(self, hints: Hints) -> Fault | None:
        preferred = [hint for hint in hints if hint.preferred]
        if not hints:
            return Fault.FITS_NOWHERE
        if not preferred:
            return Fault.SPREAD
        if all(hint.mask is not None and not self._allows(hint.mask) for hint in preferred):
            return Fault.WIDE
        return None

    def _allows(self, mask: int) -> bool:
        return self.policy is not PolicyName.SINGLE_NUMA_NODE or mask.bit_count() == 1


def explain_merge(
    policy: TopologyPolicy, provider_hints: Sequence[ProviderHints]
) -> MergeExplanation:
    """Merge once more, keeping what led to the result."""
    affinity, admitted = policy.merge(provider_hints)
    named = {name: hints for provider in provider_hints for name, hints in provider.items()}
    candidates: tuple[Hint, ...] = ()
    if policy.asks_for_hints and not affinity.preferred:
        hints = flatten_hints(provider_hints)
        if policy.name is PolicyName.SINGLE_NUMA_NODE:
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
    """One decision: for a container, or under scope ``pod`` for all of them."""

    container: str | None
    """The container's name; ``None`` for the pod as a whole."""
    resources: tuple[ResourceExplanation, ...] = ()
    merge: MergeExplanation | None = None
    """``None`` where no provider was asked for hints: policy ``none``, or decided for the pod."""
    error: str | None = None
    """Why an allocation failed after the merge, in the kubelet's words."""
    unknown: Mapping[ResourceName, int] = attrs.field(factory=dict)
    """What the container asked for and no plugin has ever offered: it does without."""


@attrs.frozen
class Holder:
    """A container of another pod, and what it had of a resource that this pod asked for."""

    pod: PodUid
    name: str
    """``namespace/name``, or the UID where nothing else is known of the pod."""
    container: ContainerName
    resource: ResourceName
    ids: tuple[DeviceId, ...]


@attrs.frozen(eq=False)
class AdmissionExplanation:
    """One pod's admission from its first step to its last."""

    pod: Pod
    policy: TopologyPolicy
    steps: tuple[StepExplanation, ...] = ()
    reason: str = ""
    """The kubelet's reason for a rejection; empty if the pod was admitted."""
    message: str = ""
    held: Mapping[PodUid, AllocatedByContainer] = attrs.field(factory=dict, repr=False)
    """What every pod held then; for an admitted pod, when its explanation was first asked for."""
    name_of: Callable[[PodUid], str] = attrs.field(default=str, repr=False)
    since: str = ""
    """Since when kubelets reject so, or until when, in words; empty if they always do."""

    @property
    def admitted(self) -> bool:
        return not self.reason

    @property
    def holders(self) -> tuple[Holder, ...]:
        """Who had the devices that were in use, sorted by pod."""
        in_use = self._in_use()
        names = {pod: self.name_of(pod) for pod in self.held if pod != self.pod.uid}
        return tuple(
            Holder(pod, names[pod], container, resource, ids)
            for pod in sorted(names, key=lambda pod: names[pod])
            for container, held in self.held[pod].items()
            for resource in sorted(in_use.keys() & held.keys())
            if (ids := tuple(sorted(held[resource].ids & in_use[resource])))
        )

    def _in_use(self) -> dict[ResourceName, frozenset[DeviceId]]:
        """The devices that some step found in use, by resource."""
        found: dict[ResourceName, frozenset[DeviceId]] = {}
        for one in (one for step in self.steps for one in step.resources):
            ids = one.devices.device_index.select(one.in_use)
            found[one.resource] = found.get(one.resource, frozenset()).union(ids)
        return found

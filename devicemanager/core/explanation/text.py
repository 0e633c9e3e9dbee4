"""Rendering of an admission's explanation as text, with a drawing of NUMA nodes and devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from devicemanager.core import messages
from devicemanager.core.explanation.model import (
    AdmissionExplanation,
    AlignmentFault,
    DeviceState,
    MergeExplanation,
    ResourceExplanation,
    StepExplanation,
)
from devicemanager.core.printable import counted, one_line
from devicemanager.core.topology import Hint, Hints, NumaTopology, PolicyName, TopologyPolicy
from devicemanager.core.topology.numa import nodes_of

SYMBOLS = {
    DeviceState.FREE: ".",
    DeviceState.IN_USE: "#",
    DeviceState.UNHEALTHY: "x",
    DeviceState.CHOSEN: "*",
    DeviceState.OWN: "+",
}
WIDEST_DRAWING = 64
"""Largest number of devices of a NUMA node for which the text has one symbol per device. For more
devices, it has only the number of devices in each state."""
MOST_HOLDERS = 50
"""Largest number of containers that are listed with their devices."""
MOST_HINTS = 8
"""Largest number of hints of one resource that are listed; there can be hundreds."""


def render(explanation: AdmissionExplanation) -> str:
    """Render the explanation of an admission as text that ends with a newline."""
    lines = (*_head(explanation), *steps(explanation), *in_use(explanation))
    # Escaped before the lines are joined, because a device ID can contain a line end.
    return "\n".join(map(one_line, lines)) + "\n"


def steps(explanation: AdmissionExplanation) -> Iterator[str]:
    """Render the steps of the admission as lines, with a blank line before each step. If a step
    requests device resources, a legend of the symbols comes last."""
    policy = explanation.policy
    for step in explanation.steps:
        yield ""
        yield "the pod as a whole" if step.container is None else f"container {step.container}"
        yield from (f"  {line}" for line in _step(step, policy, explanation.admitted))
    resources = [one for step in explanation.steps for one in step.resources]
    if resources:
        yield ""
        yield f"legend: {_legend(resources)}"


def in_use(explanation: AdmissionExplanation) -> Iterator[str]:
    """Render the containers in ``explanation.holders`` as lines, one per container and resource.

    A blank line and a heading come first. Without holders, the result is empty.
    """
    holders = explanation.holders
    if holders:
        yield ""
        yield "in use:"
    for one in holders[:MOST_HOLDERS]:
        ids = ", ".join(one.ids)
        yield f"  {one.resource} {ids}: pod {one.name}, container {one.container}"
    if len(holders) > MOST_HOLDERS:
        yield f"  and {counted(len(holders) - MOST_HOLDERS, 'more container')}"


def admitting(merge: MergeExplanation, policy: TopologyPolicy) -> tuple[PolicyName, ...]:
    """Return the policies that would admit the pod with the hints of ``merge``, strictest first.

    The policy of ``merge`` itself is left out.
    """
    return tuple(
        name
        for name in reversed(PolicyName)
        if name is not merge.policy and attrs.evolve(policy, name=name).merge([merge.hints])[1]
    )


def sentence(merge: MergeExplanation, resources: Iterable[ResourceExplanation] = ()) -> str:
    """Return the policy's decision and its reason in one sentence.

    If a resource in ``resources`` has too few free devices, the sentence says how many of its
    devices are free.
    """
    if merge.policy is PolicyName.NONE:
        return "none: no alignment"
    if merge.affinity.preferred:
        return f"{merge.policy}: {_aligned(merge)}"
    why = "; ".join(_faults(merge, {one.resource: one for one in resources}))
    if not merge.admitted:
        return f"{merge.policy}: {why}"
    assert merge.affinity.mask is not None
    nodes = node_names(nodes_of(merge.affinity.mask))
    return f"{merge.policy}: not aligned, prefers {nodes}: {why}"


def node_names(nodes: tuple[int, ...]) -> str:
    """Return a name for a set of NUMA nodes, such as ``node 0`` or ``nodes 0+1``."""
    return ("node " if len(nodes) == 1 else "nodes ") + "+".join(map(str, nodes))


def _head(explanation: AdmissionExplanation) -> Iterator[str]:
    pod, policy = explanation.pod, explanation.policy
    verdict = "admitted" if explanation.admitted else f"rejected: {explanation.reason}"
    yield f"pod {pod.namespace}/{pod.name} {verdict}"
    if explanation.message:
        yield f"  {explanation.message}"
    if explanation.since:
        yield f"  {explanation.since}"
    yield f"  policy {policy.name}, scope {policy.scope}"


def _legend(resources: list[ResourceExplanation]) -> str:
    shares = any(one.own for one in resources)
    return ", ".join(
        f"{symbol} {state.value}"
        for state, symbol in SYMBOLS.items()
        if state is not DeviceState.OWN or shares
    )


def _step(step: StepExplanation, policy: TopologyPolicy, admitted: bool) -> Iterator[str]:
    hints = dict(step.merge.hints) if step.merge else {}
    for one in step.resources:
        yield f"{one.resource}: {one.request} requested"
        yield from (f"  {line}" for line in _drawing(one, policy.topology))
        if one.chosen:
            # A rejected pod keeps no devices, but some were chosen for its first containers.
            label = "chosen" if admitted else "chosen before the rejection"
            yield f"  {label}: {', '.join(one.chosen_ids)}"
        if one.resource in hints:
            yield f"  {_fits(hints.pop(one.resource))}"
        nodes = one.devices.device_index.per_node
        if policy.asks_for_hints and (missing := policy.missing_nodes(nodes)):
            yield f"  {messages.NO_SUCH_NUMA_NODE.format(node=missing[0])}"
    for resource, count in step.unknown.items():
        yield f"{resource}: {count} requested, not registered: the kubelet ignores this request"
    # The hints that are left belong to resources without device lists: CPUs and memory.
    for name, others in hints.items():
        yield f"{name} {_fits(others)}"
    if step.merge:
        yield f"=> {sentence(step.merge, step.resources)}"
        if len(step.merge.candidates) > 1:
            best = ", ".join(_nodes(hint) for hint in step.merge.candidates)
            yield f"   best possible results: {best}"
        if not step.merge.admitted:
            yield f"   {_way_out(step.merge, step.resources, policy)}"
    if step.error:
        yield f"=> {step.error}"


def _way_out(
    merge: MergeExplanation, resources: Iterable[ResourceExplanation], policy: TopologyPolicy
) -> str:
    """Return the other policies that would admit the pod, as a sentence.

    If too few devices are free, the sentence says that no policy would admit the pod.
    """
    devices: dict[str, ResourceExplanation] = {one.resource: one for one in resources}
    short = [
        name
        for name, hints in merge.hints.items()
        # Of CPUs and memory, only the hints are known here. An empty tuple means that the request
        # fits nowhere.
        if (_is_short(devices[name]) if name in devices else hints == ())
    ]
    if short:
        return f"no other policy would help: not enough free: {', '.join(short)}"
    policies = " or ".join(admitting(merge, policy))
    return f"under policy {policies}, the pod would not be rejected for this"


def _is_short(one: ResourceExplanation) -> bool:
    """True if all NUMA nodes together have too few free devices for the request."""
    return one.request > (one.free | one.own).bit_count()


def _drawing(one: ResourceExplanation, topology: NumaTopology) -> Iterator[str]:
    places = one.places(topology)
    names = {node: "no node" if node is None else f"node {node}" for node in places}
    drawn = {node: f"[{_devices(one, bits)}]" for node, bits in places.items()}
    free = one.free_per_node(topology)
    for node, bits in places.items():
        yield (
            f"{names[node]:{max(map(len, names.values()))}} "
            f"{drawn[node]:{max(map(len, drawn.values()))}} "
            f"{free[node]} of {bits.bit_count()} free"
        )


def _devices(one: ResourceExplanation, bits: int) -> str:
    if bits.bit_count() <= WIDEST_DRAWING:
        return "".join(SYMBOLS[state] for _, state in one.states(bits))
    # A device can be in several sets. It counts once, by the order of tests in ``states``.
    chosen, own = bits & one.chosen, bits & one.own & ~one.chosen
    in_use = bits & one.in_use & ~chosen & ~own
    free = bits & one.free & ~chosen & ~own
    counts = {
        DeviceState.FREE: free.bit_count(),
        DeviceState.IN_USE: in_use.bit_count(),
        DeviceState.UNHEALTHY: (bits & ~free & ~in_use & ~chosen & ~own).bit_count(),
        DeviceState.CHOSEN: chosen.bit_count(),
        DeviceState.OWN: own.bit_count(),
    }
    return " ".join(f"{SYMBOLS[state]} {count}" for state, count in counts.items() if count)


def _fits(hints: Hints | None) -> str:
    """Render hints as text. Preferred hints come first and have an exclamation mark."""
    if hints is None:
        return "fits on any node: its devices have no topology"
    if not hints:
        return "fits nowhere"
    # The sort is stable, so in both groups the smallest sets stay first.
    ordered = sorted(hints, key=lambda hint: not hint.preferred)
    shown = ", ".join(_nodes(hint) + "!" * hint.preferred for hint in ordered[:MOST_HINTS])
    more = f" and {len(hints) - MOST_HINTS} more" if len(hints) > MOST_HINTS else ""
    return f"fits on {shown}{more}" + (" (! preferred)" if ordered[0].preferred else "")


def _nodes(hint: Hint) -> str:
    return "any node" if hint.mask is None else node_names(nodes_of(hint.mask))


def _aligned(merge: MergeExplanation) -> str:
    if all(hints is None for hints in merge.hints.values()):
        return "nothing to align"
    if merge.affinity.mask is None:
        return "aligned to the whole machine"
    return f"aligned to {node_names(nodes_of(merge.affinity.mask))}"


def _faults(merge: MergeExplanation, resources: dict[str, ResourceExplanation]) -> Iterator[str]:
    together = []
    for name, fault in merge.faults.items():
        if fault is AlignmentFault.NO_COMMON_NODES:
            together.append(name)
        else:
            yield f"{name} {_alone(merge, name, fault, resources.get(name))}"
    if together:
        alone = [f"{name} can be aligned to {_either(merge, name)}" for name in together]
        singles = all(len(nodes) == 1 for name in together for nodes in merge.aligned_to(name))
        yield f"{', '.join(alone)}; there is no common {'node' if singles else 'set of nodes'}"


def _either(merge: MergeExplanation, name: str) -> str:
    sets = merge.aligned_to(name)
    shown = " or ".join(node_names(nodes) for nodes in sets[:MOST_HINTS])
    return shown + (" or others" if len(sets) > MOST_HINTS else "")


def _alone(
    merge: MergeExplanation, name: str, fault: AlignmentFault, one: ResourceExplanation | None
) -> str:
    if fault is AlignmentFault.FITS_NOWHERE:
        if one is None:
            return "fits nowhere"
        free, on_nodes = one.free, one.free & one.devices.device_index.with_topology
        of_them = f", {on_nodes.bit_count()} of them on a node" if on_nodes != free else ""
        return f"fits nowhere: {one.request} requested, {free.bit_count()} free{of_them}"
    narrowest = node_names(merge.narrowest(name))
    if fault is AlignmentFault.WIDE:
        return f"does not fit on one node: it needs {narrowest}"
    return f"is free only across {narrowest}; fewer nodes would be enough if no device were in use"

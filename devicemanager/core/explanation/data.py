"""Conversion of an admission's explanation to plain data, for JSON."""

from __future__ import annotations

from typing import Any

from devicemanager.core.explanation.model import (
    AdmissionExplanation,
    MergeExplanation,
    ResourceExplanation,
    StepExplanation,
)
from devicemanager.core.explanation.text import admitting, sentence
from devicemanager.core.topology import Hint, NumaTopology, TopologyPolicy
from devicemanager.core.topology.numa import nodes_of


def as_dict(explanation: AdmissionExplanation) -> dict[str, Any]:
    """Convert an explanation to dicts, lists, strings, numbers, booleans and None.

    The set of NUMA nodes in a hint becomes a list of node IDs. If the hint prefers no nodes, the
    result has None in place of the list.
    """
    pod, policy = explanation.pod, explanation.policy
    return {
        "pod": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        "admitted": explanation.admitted,
        "reason": explanation.reason,
        "message": explanation.message,
        "policy": _policy(policy),
        "steps": [_step(step, policy) for step in explanation.steps],
        "holders": [
            {
                "pod": one.name,
                "uid": one.pod,
                "container": one.container,
                "resource": one.resource,
                "device_ids": list(one.ids),
            }
            for one in explanation.holders
        ],
    }


def _policy(policy: TopologyPolicy) -> dict[str, Any]:
    return {
        "name": policy.name.value,
        "scope": policy.scope.value,
        "prefer_closest_numa_nodes": policy.options.prefer_closest,
        "max_allowable_numa_nodes": policy.options.max_numa_nodes,
        "numa_nodes": list(policy.topology.nodes),
        "distances": [list(row) for row in policy.topology.distances],
    }


def _step(step: StepExplanation, policy: TopologyPolicy) -> dict[str, Any]:
    merge = step.merge
    return {
        "container": step.container,
        "resources": [_resource(one, policy.topology) for one in step.resources],
        "unknown": dict(step.unknown),
        "merge": None if merge is None else _merge(merge, step, policy),
        "error": step.error,
    }


def _resource(one: ResourceExplanation, topology: NumaTopology) -> dict[str, Any]:
    ids = one.devices.device_index.ids
    free = one.free_per_node(topology)
    places = [
        {
            "numa_node": node,
            "free": free[node],
            "devices": {ids[number]: state.value for number, state in one.states(bits)},
        }
        for node, bits in one.places(topology).items()
    ]
    return {
        "resource": one.resource,
        "request": one.request,
        "free": one.free.bit_count(),
        "chosen": list(one.chosen_ids),
        "places": places,
    }


def _merge(
    merge: MergeExplanation, step: StepExplanation, policy: TopologyPolicy
) -> dict[str, Any]:
    return {
        "hints": {
            name: None if hints is None else [_hint(hint) for hint in hints]
            for name, hints in merge.hints.items()
        },
        "affinity": _hint(merge.affinity),
        "admitted": merge.admitted,
        "candidates": [_hint(hint) for hint in merge.candidates],
        "faults": {name: fault.value for name, fault in merge.faults.items()},
        "other_policies_admitting": [name.value for name in admitting(merge, policy)],
        "summary": sentence(merge, step.resources),
    }


def _hint(hint: Hint) -> dict[str, Any]:
    nodes = None if hint.mask is None else list(nodes_of(hint.mask))
    return {"numa_nodes": nodes, "preferred": hint.preferred}

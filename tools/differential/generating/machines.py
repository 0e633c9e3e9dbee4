"""Make machines: NUMA nodes, policies, options, gates and other resources."""

from __future__ import annotations

from typing import Final

from tools.differential.generating.state import Plain, State

_POLICIES: Final = ("none", "best-effort", "best-effort", "restricted", "single-numa-node")
_NODES: Final = ((0,), (0, 1), (0, 1), (0, 1, 2, 3), (0, 1, 2, 3), (0, 2, 5), tuple(range(8)))


def machine(state: State) -> Plain:
    """Return the constant part of a scenario, without plugins."""
    rng = state.rng
    state.numa = rng.choice(_NODES)
    made: Plain = {
        "numa_nodes": list(state.numa),
        "policy": rng.choice(_POLICIES),
        "scope": rng.choice(("container", "pod")),
        "policy_options": _options(state),
    }
    if state.chance(0.02):
        # Only one error: a kubelet checks its configuration before the topology manager does, in
        # another order.
        wrong = rng.choice(({"policy": "odd"}, {"scope": "odd"}, {"numa_nodes": list(range(9))}))
        made |= {"policy": "restricted", "policy_options": {}} | wrong
    # The reference indexes distances by NUMA node ID and panics if IDs have gaps (Q28).
    has_distances = made["numa_nodes"] == list(range(len(state.numa)))
    if has_distances and state.chance(0.9):
        made["numa_distances"] = _distances(state)
    elif state.chance(0.9):
        # Without distances, this option is an error.
        made["policy_options"].pop("prefer-closest-numa-nodes", None)
    gates = _gates(state)
    if gates:
        made["feature_gates"] = gates
    if state.has_pod_level:
        made["policy"] = rng.choice(("best-effort", "restricted", "restricted"))
    if state.chance(0.15):
        made["node"] = rng.choice(({"cpu": "3"}, {"memory": "1Gi"}, {"pods": "2"}))
        state.node = made["node"]
    # Unlike 1.37, the reference lists no CPUs and memory of whole pods.
    if state.chance(0.15) and not (state.version >= 37 and state.has_pod_level):
        made["other"] = _other(state)
        state.has_other = True
    return made


def _options(state: State) -> Plain:
    rng = state.rng
    if state.version < 26:
        return {}
    # At most one wrong option: of two, the reference reports one at random.
    if state.chance(0.04):
        return rng.choice(
            (
                {"prefer-closest-numa-nodes": "maybe"},
                {"max-allowable-numa-nodes": "7"},
                {"max-allowable-numa-nodes": "many"},
                {"no-such-option": "true"},
            )
        )
    found = {}
    if state.chance(0.3):
        found["prefer-closest-numa-nodes"] = rng.choice(("true", "true", "false"))
    if state.chance(0.1):
        found["max-allowable-numa-nodes"] = rng.choice(("8", "9"))
    return found


def _distances(state: State) -> list[list[int]]:
    near = (11, 20, 21, 32)
    return [[10 if a == b else state.rng.choice(near) for b in state.numa] for a in state.numa]


def _gates(state: State) -> dict[str, bool]:
    gates = {}
    if state.version >= 31 and state.chance(0.7):
        gates["ResourceHealthStatus"] = state.chance(0.75)
    if 26 <= state.version < 28 and state.chance(0.7):
        # Otherwise each option is a configuration error.
        names = ("Options", "AlphaOptions")
        gates |= {f"TopologyManagerPolicy{each}": True for each in names}
    if state.version >= 36 and state.chance(0.15):
        gates["PodLevelResourceManagers"] = state.has_pod_level = True
    return gates


def _other(state: State) -> Plain:
    rng = state.rng
    subsets = [[node] for node in state.numa] + [list(state.numa)]
    hints = [
        {"nodes": nodes, "preferred": len(nodes) == 1} for nodes in subsets if state.chance(0.6)
    ]
    return {
        "hints": rng.choice((None, hints, hints, hints)),
        "cpus": rng.choice(([], [0, 1], [2, 7, 9])),
        "memory": rng.choice(([], [{"type": "memory", "size": 1 << 30, "nodes": [state.numa[0]]}])),
    }

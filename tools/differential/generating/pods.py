"""Make pods with containers and requests."""

from __future__ import annotations

from tools.differential.generating.state import RESOURCES, Plain, State


def pod(state: State, uid: str | None = None) -> Plain:
    """Return a pod that usually fits the registered plugins."""
    rng = state.rng
    inits = [
        container(state, f"init-{number}") | {"restartable": state.chance(0.4)}
        for number in range(rng.choice((0, 0, 0, 1, 1, 2)))
    ]
    apps = [container(state, f"main-{number}") for number in range(rng.choice((1, 1, 1, 2)))]
    made: Plain = {"uid": uid or state.new_uid(), "containers": apps, "init_containers": inits}
    # If the pod requested more than its containers, the node would reject it.
    if state.version >= 32 and not state.node and state.chance(0.15):
        made["pod_level"] = True
    return made


def container(state: State, name: str) -> Plain:
    """Return a container. It requests few devices, usually of existing resources."""
    rng = state.rng
    known = sorted(state.plugins) or list(RESOURCES[:1])
    if state.chance(0.08):
        known = list(RESOURCES)
    limits: Plain = {}
    for resource in rng.sample(known, min(len(known), rng.choice((1, 1, 1, 2)))):
        if state.chance(0.9):
            limits[resource] = rng.choice((0, 1, 1, 1, 1, 1, 2, 2, 3, 5))
    if state.chance(0.5 if state.has_other or "cpu" in state.node else 0.1):
        limits["cpu"] = rng.choice((1, 2, 3))
    if state.chance(0.5 if "memory" in state.node else 0.05):
        limits["memory"] = 1 << 30
    return {"name": name, "limits": limits}


def simple(resource: str, uid: str, count: int = 1) -> Plain:
    """Return a pod with one container that requests devices of one resource."""
    return {
        "uid": uid,
        "containers": [{"name": "main-0", "limits": {resource: count}}],
        "init_containers": [],
    }

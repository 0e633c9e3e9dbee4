"""Short sequences of steps that lead to a state that single steps rarely reach."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Final

from tools.differential.generating import devices, pods, steps
from tools.differential.generating.state import Plain, State

Story = Callable[[State, str], Iterator[Plain]]


def story(state: State) -> list[Plain]:
    """Return the steps of a random story about a resource that has a plugin."""
    if not state.plugins:
        state.registered("vendor.com/gpu", devices.plugin(state, "vendor.com/gpu"))
        first = {"register": {"resource": "vendor.com/gpu", **state.plugins["vendor.com/gpu"]}}
        return [copy.deepcopy(first)]
    resource = state.rng.choice(sorted(state.plugins))
    if state.node and state.chance(0.4):
        return list(_crowd(state, resource))
    if state.has_pod_level and state.chance(0.4):
        return list(_pod_level(state, resource))
    return list(state.rng.choice(_STORIES)(state, resource))


def _healthy(state: State, resource: str, count: int = 6) -> Plain:
    """Let the plugin list healthy devices, so that pods fit."""
    short = resource.rpartition("/")[2]
    nodes = state.rng.choice(((None,), tuple([node] for node in state.numa)))
    listed: list[Plain] = [
        {
            "id": f"{short}-{number:02}",
            "health": "Healthy",
            "numa": nodes[number % len(nodes)],
        }
        for number in range(count)
    ]
    state.plugins[resource]["devices"] = listed
    return {"list": {"resource": resource, "devices": copy.deepcopy(listed)}}


def _pod(state: State, resource: str, count: int = 1) -> Plain:
    pod = pods.simple(resource, state.new_uid(), count)
    state.admitted(pod)
    return {"admit": pod, "no_hints": True}


def _start(state: State, uid: str) -> Plain:
    state.started.append(uid)
    return {"start": uid}


def _life(state: State, resource: str) -> Iterator[Plain]:
    """Admit and start a pod. One of its devices becomes unhealthy, then the pod ends."""
    yield _healthy(state, resource)
    admitted = _pod(state, resource, state.rng.choice((1, 2, 3)))
    yield admitted
    yield _start(state, admitted["admit"]["uid"])
    for device in state.plugins[resource]["devices"]:
        device["health"] = state.rng.choice(("Healthy", "Unhealthy"))
    yield {
        "list": {
            "resource": resource,
            "devices": copy.deepcopy(state.plugins[resource]["devices"]),
        }
    }
    yield {"start": admitted["admit"]["uid"]}


def _same_uid(state: State, resource: str) -> Iterator[Plain]:
    """Delete a pod, and admit another with its UID and the same or another request."""
    yield _healthy(state, resource)
    admitted = _pod(state, resource, 2)
    yield admitted
    uid = admitted["admit"]["uid"]
    if state.chance(0.5):
        yield _start(state, uid)
    state.gone(uid)
    yield {"delete": uid}
    if state.chance(0.4):
        for device in state.plugins[resource]["devices"]:
            if state.chance(0.5):
                device["health"] = "Unhealthy"
        listed = copy.deepcopy(state.plugins[resource]["devices"])
        yield {"list": {"resource": resource, "devices": listed}}
    pod = copy.deepcopy(admitted["admit"])
    pod["containers"][0]["limits"][resource] = state.rng.choice((1, 2, 2, 3))
    state.admitted(pod)
    yield {"admit": pod, "no_hints": state.chance(0.7)}


def _away(state: State, resource: str) -> Iterator[Plain]:
    """End a plugin while its pod runs. Start the pod, and admit another one."""
    yield _healthy(state, resource)
    admitted = _pod(state, resource)
    yield admitted
    uid = admitted["admit"]["uid"]
    watched = resource in state.watched
    state.left(resource)
    yield {"unwatch" if watched else "stop": resource}
    if state.chance(0.6):
        yield _start(state, uid)
    if state.chance(0.7):
        yield {"grace": state.rng.choice((299, 301))}
    yield _start(state, uid)
    yield _pod(state, resource)
    if state.chance(0.5):
        described = steps.returned(state, resource)
        state.registered(resource, described)
        yield {"register": {"resource": resource, **copy.deepcopy(described)}}
        yield _pod(state, resource)


def _reboot(state: State, resource: str) -> Iterator[Plain]:
    """Restart or reboot with a running pod. Its plugin returns before it, perhaps changed."""
    if state.retiring:
        return
    yield _healthy(state, resource)
    admitted = _pod(state, resource, 2)
    yield admitted
    uid = admitted["admit"]["uid"]
    if state.chance(0.6):
        yield _start(state, uid)
    described = copy.deepcopy(state.plugins[resource])
    change = state.rng.choice(("same", "same", "sick", "sick", "fewer", "other node"))
    listed = described["devices"]
    if change == "sick":
        for device in listed:
            device["health"] = state.rng.choice(("Healthy", "Unhealthy"))
    elif change == "fewer":
        del listed[: len(listed) // 2]
    elif change == "other node":
        for device in listed:
            device["numa"] = [state.numa[-1]]
    described.pop("pre_start_error", None)
    state.restarted()
    state.registered(resource, described)
    before = [{"resource": resource, **copy.deepcopy(described)}]
    yield {"restart": {"reboot": state.chance(0.8), "before": before}}
    yield _pod(state, resource)


def _silent(state: State, resource: str) -> Iterator[Plain]:
    """Register a plugin without a list. Admit pods before and after its first list."""
    if resource in state.watched:
        return
    state.left(resource)
    yield {"stop": resource}
    yield {"grace": 301}
    described = {**devices.plugin(state, resource), "devices": None, "allocate_error": ""}
    state.registered(resource, described)
    yield {"register": {"resource": resource, **copy.deepcopy(described)}}
    first = _pod(state, resource, 3)
    yield first
    if state.chance(0.5):
        yield _start(state, first["admit"]["uid"])
    yield _healthy(state, resource, state.rng.choice((2, 4, 4, 6)))
    yield _pod(state, resource, 2)
    yield {"start": first["admit"]["uid"]}


def _init(state: State, resource: str) -> Iterator[Plain]:
    """Admit a pod whose init containers make their devices reusable and whose sidecar keeps its
    own."""
    yield _healthy(state, resource, state.rng.choice((3, 4, 6)))
    pod = pods.simple(resource, state.new_uid(), state.rng.choice((1, 2, 3)))
    pod["init_containers"] = [
        {
            "name": f"init-{number}",
            "limits": {resource: state.rng.choice((1, 2, 3))},
            "restartable": state.chance(0.35),
        }
        for number in range(state.rng.choice((1, 2)))
    ]
    state.admitted(pod)
    yield {"admit": pod}
    yield _start(state, pod["uid"])
    if state.chance(0.4):
        state.gone(pod["uid"])
        yield {"delete": pod["uid"]}
        copied = copy.deepcopy(pod)
        state.admitted(copied)
        yield {"admit": copied, "no_hints": True}


def _full(state: State, resource: str) -> Iterator[Plain]:
    """Admit pods until no device is free. End one, and allocate its devices again."""
    yield _healthy(state, resource, 4)
    first = _pod(state, resource, 3)
    yield first
    yield _start(state, first["admit"]["uid"])
    yield _pod(state, resource, 2)
    uid = first["admit"]["uid"]
    if state.chance(0.5):
        state.active.remove(uid)
        state.started.remove(uid)
        state.ended.append(uid)
        yield {"finish": uid}
    else:
        state.gone(uid)
        yield {"delete": uid}
    if not state.retiring and state.chance(0.3):
        yield {"restart": {"reboot": False, "before": _back(state)}}
    yield _pod(state, resource, 2)


def _back(state: State) -> list[Plain]:
    there = copy.deepcopy(state.plugins)
    state.restarted()
    for resource, described in there.items():
        state.registered(resource, described)
    return [{"resource": name, **copy.deepcopy(each)} for name, each in sorted(there.items())]


def _two_plugins(state: State, resource: str) -> Iterator[Plain]:
    """Let two plugins serve a resource. Both send lists, and one ends."""
    if resource in state.watched:
        return
    yield _healthy(state, resource)
    described = devices.plugin(state, resource)
    if state.chance(0.6):
        described["devices"] = copy.deepcopy(state.plugins[resource]["devices"])
    state.registered(resource, described)
    yield {"register": {"resource": resource, **copy.deepcopy(described)}}
    yield _pod(state, resource)
    if state.chance(0.6):
        listed = devices.device_list(state, resource)
        yield {"list_old": {"resource": resource, "devices": listed}}
        yield _pod(state, resource)
    if state.chance(0.6):
        state.replaced[resource] -= 1
        yield {"stop_old": resource}
    else:
        state.left(resource)
        yield {"stop": resource}
    yield _pod(state, resource)


def _wide(state: State, resource: str) -> Iterator[Plain]:
    """Admit pods that need devices of several NUMA nodes, while others use some of these."""
    per_node = state.rng.choice((2, 2, 3))
    short = resource.rpartition("/")[2]
    listed: list[Plain] = [
        {"id": f"{short}-{number:02}", "health": "Healthy", "numa": [node]}
        for number, node in enumerate(node for node in state.numa for _ in range(per_node))
    ]
    state.plugins[resource]["devices"] = listed
    yield {"list": {"resource": resource, "devices": copy.deepcopy(listed)}}
    for count in (state.rng.choice((1, per_node)), per_node + 1, per_node):
        pod = pods.simple(resource, state.new_uid(), count)
        state.admitted(pod)
        yield {"admit": pod}


def _init_elsewhere(state: State, resource: str) -> Iterator[Plain]:
    """Admit a pod whose init container gets devices of the last NUMA node: the first is nearly
    full."""
    short = resource.rpartition("/")[2]
    nodes = [state.numa[0]] * 3 + [state.numa[-1]] * 3
    listed: list[Plain] = [
        {"id": f"{short}-{number:02}", "health": "Healthy", "numa": [node]}
        for number, node in enumerate(nodes)
    ]
    state.plugins[resource]["devices"] = listed
    yield {"list": {"resource": resource, "devices": copy.deepcopy(listed)}}
    yield _pod(state, resource, 2)
    pod = pods.simple(resource, state.new_uid(), 1)
    init = {"name": "init-0", "limits": {resource: 2}, "restartable": state.chance(0.2)}
    pod["init_containers"] = [init]
    state.admitted(pod)
    yield {"admit": pod}


def _survives(state: State, resource: str) -> Iterator[Plain]:
    """Restart with a running pod but without its plugin. The pod also has a limit of 0."""
    if state.retiring:
        return
    yield _healthy(state, resource)
    admitted = _pod(state, resource, 2)
    admitted["admit"]["containers"].append({"name": "none", "limits": {resource: 0}})
    yield admitted
    yield _start(state, admitted["admit"]["uid"])
    described = copy.deepcopy(state.plugins[resource])
    state.restarted()
    yield {"restart": {"reboot": False}}
    state.registered(resource, described)
    yield {"register": {"resource": resource, **copy.deepcopy(described)}}


def _watched(state: State, resource: str) -> Iterator[Plain]:
    """Register and remove a plugin through the watched directory."""
    if resource in state.watched:
        return
    described = copy.deepcopy(state.plugins[resource])
    state.left(resource)
    yield {"stop": resource}
    state.registered(resource, described)
    state.watched.add(resource)
    yield {"watch": {"resource": resource, **copy.deepcopy(described)}}
    yield _healthy(state, resource)
    pod = pods.simple(resource, state.new_uid(), 2)
    if state.chance(0.4):
        pod["meanwhile"] = pods.simple(resource, state.new_uid(), state.rng.choice((1, 5)))
        state.admitted(pod["meanwhile"])
    state.admitted(pod)
    yield {"admit": pod}
    state.left(resource)
    yield {"unwatch": resource}


def _crowd(state: State, resource: str) -> Iterator[Plain]:
    """Admit more pods than the node has CPUs or memory for."""
    yield _healthy(state, resource)
    for _ in range(3):
        made = _pod(state, resource)
        made["admit"]["containers"][0]["limits"] |= {"cpu": 2, "memory": 1 << 29}
        yield made


def _pod_level(state: State, resource: str) -> Iterator[Plain]:
    """Admit a pod with pod-level resources, sometimes when no hints are possible."""
    yield _healthy(state, resource)
    if state.chance(0.6):
        for device in state.plugins[resource]["devices"]:
            device["numa"] = [-1]
        listed = copy.deepcopy(state.plugins[resource]["devices"])
        yield {"list": {"resource": resource, "devices": listed}}
    pod = {**pods.simple(resource, state.new_uid()), "pod_level": not state.node}
    state.admitted(pod)
    yield {"admit": pod}
    yield _start(state, pod["uid"])


_STORIES: Final[tuple[Story, ...]] = (
    _life, _life, _same_uid, _away, _reboot, _reboot, _silent, _init, _init, _full, _two_plugins,
    _pod_level, _watched, _wide, _wide, _init_elsewhere, _survives,
)  # fmt: skip

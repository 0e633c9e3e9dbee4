"""Make single steps. Each function returns a step; None if it is not possible in this state."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Final

from tools.differential.generating import devices, pods, saved
from tools.differential.generating.state import RESOURCES, Plain, State

Maker = Callable[[State], Plain | None]


def step(state: State) -> Plain:
    """Return a random step."""
    while True:
        (maker,) = state.rng.choices(_MAKERS, _WEIGHTS)
        made = maker(state)
        if made is not None:
            return made


def admit(state: State, pod: Plain | None = None) -> Plain:
    """Admit a pod."""
    pod = pod or pods.pod(state)
    if state.chance(0.04):
        # Both pods keep their devices during the call, so the result is not random.
        pod["meanwhile"] = pods.simple(_any(state), state.new_uid())
        state.admitted(pod["meanwhile"])
    state.admitted(pod)
    return {"admit": pod} | ({"no_hints": True} if state.chance(0.4) else {})


def again(state: State, *, changed: bool = False) -> Plain | None:
    """Admit a pod with the UID of a deleted pod."""
    if not state.deleted:
        return None
    uid = state.rng.choice(state.deleted)
    if not changed and state.chance(0.5):
        return admit(state, pods.pod(state, uid))
    pod = copy.deepcopy(state.pods[uid])
    pod.pop("meanwhile", None)
    if changed:
        limits = pod["containers"][0]["limits"]
        for resource in limits:
            limits[resource] += 1
    return admit(state, pod)


def _any(state: State) -> str:
    return state.rng.choice(sorted(state.plugins) or RESOURCES[:1])


def start(state: State) -> Plain | None:
    """Start the containers of a pod, usually of one that has never started."""
    waiting = [uid for uid in state.active if uid not in state.started]
    if not state.active:
        return None
    uid = state.rng.choice(waiting if waiting and state.chance(0.8) else state.active)
    if uid not in state.started:
        state.started.append(uid)
    return {"start": uid}


def finish(state: State) -> Plain | None:
    """End a pod; the kubelet still knows it."""
    if not state.active:
        return None
    uid = state.rng.choice(state.active)
    for uids in (state.active, state.started, state.retiring):
        if uid in uids:
            uids.remove(uid)
    state.ended.append(uid)
    return {"finish": uid}


def delete(state: State) -> Plain | None:
    """Delete a pod, ended or not."""
    there = [*state.active, *state.ended]
    if not there:
        return None
    uid = state.rng.choice(there)
    state.gone(uid)
    return {"delete": uid}


def retire(state: State) -> Plain | None:
    """Delete a pod gracefully, or let the containers of a gracefully deleted pod exit."""
    if state.retiring and state.chance(0.8):
        uid = state.rng.choice(state.retiring)
        state.gone(uid)
        return {"exit": uid}
    running = [uid for uid in state.started if uid not in state.retiring]
    if not running:
        return None
    uid = state.rng.choice(running)
    state.retiring.append(uid)
    return {"retire": uid}


def change_list(state: State) -> Plain | None:
    """Let the latest plugin of a resource send another list."""
    if not state.plugins:
        return None
    resource = state.rng.choice(sorted(state.plugins))
    described = state.plugins[resource]
    changed = devices.changed_list(state, described.get("devices") or [], resource)
    described["devices"] = changed
    return {"list": {"resource": resource, "devices": copy.deepcopy(changed)}}


def change_old_list(state: State) -> Plain | None:
    """Let a replaced plugin send a list."""
    there = sorted(name for name, count in state.replaced.items() if count)
    if not there:
        return None
    resource = state.rng.choice(there)
    return {"list_old": {"resource": resource, "devices": devices.device_list(state, resource)}}


def register(state: State) -> Plain | None:
    """Register a plugin: an ended one again, another one for a resource, or an invalid one."""
    rng = state.rng
    if state.chance(0.08):
        version = rng.choice(("v9", "v1beta1 "))
        # The kubelet checks the version before the name.
        name = rng.choice((RESOURCES[0], RESOURCES[0], "gpu"))
        return {"register": {"resource": name, "version": version}}
    if state.chance(0.05):
        name = rng.choice(("gpu", "kubernetes.io/x", "requests.vendor.com/x"))
        return {"register": {"resource": name}}
    resource = rng.choice(sorted(state.away) or [*sorted(state.plugins), *RESOURCES[:2]])
    described = returned(state, resource)
    same = {"same_socket": True} if resource in state.plugins and state.chance(0.25) else {}
    if same and state.version >= 37:
        # Rejected: the previous plugin still serves the resource.
        return {"register": {"resource": resource, **described, **same}}
    state.registered(resource, described)
    return {"register": {"resource": resource, **copy.deepcopy(described), **same}}


def returned(state: State, resource: str) -> Plain:
    """Return a plugin for a resource, usually its previous plugin with the same device list."""
    before = state.away.get(resource) or state.plugins.get(resource)
    if before is None or state.chance(0.3):
        made = devices.plugin(state, resource)
        if before is not None and state.chance(0.6):
            made["devices"] = copy.deepcopy(before["devices"])
    else:
        made = copy.deepcopy(before)
    if state.chance(0.08):
        made["devices"] = None
    return made


def watch(state: State) -> Plain | None:
    """Register a plugin through the watched directory, or remove one from there."""
    if state.watched and state.chance(0.7):
        resource = state.rng.choice(sorted(state.watched))
        state.left(resource)
        return {"unwatch": resource}
    resource = state.rng.choice(RESOURCES)
    if resource in state.plugins:
        return None
    described = returned(state, resource)
    state.registered(resource, described)
    state.watched.add(resource)
    return {"watch": {"resource": resource, **copy.deepcopy(described)}}


def stop(state: State) -> Plain | None:
    """End the latest plugin of a resource."""
    there = sorted(state.plugins.keys() - state.watched)
    if not there:
        return None
    resource = state.rng.choice(there)
    state.left(resource)
    return {"stop": resource}


def stop_old(state: State) -> Plain | None:
    """End a plugin that was replaced."""
    there = sorted(name for name, count in state.replaced.items() if count)
    if not there:
        return None
    resource = state.rng.choice(there)
    state.replaced[resource] -= 1
    return {"stop_old": resource}


def grace(state: State) -> Plain | None:
    """Advance the time for ended plugins, sometimes by less than their grace period."""
    if not state.away and not state.chance(0.2):
        return None
    return {"grace": state.rng.choice((200, 299, 301, 360, 360))}


def restart(state: State) -> Plain | None:
    """Restart the kubelet or the node. Often plugins register before pods are admitted again."""
    # The device manager does not decide when a terminating pod is removed after a restart.
    if state.retiring:
        return None
    how: Plain = {"reboot": state.chance(0.5)}
    before = dict(state.plugins)
    state.restarted()
    if state.chance(0.1):
        there = [state.pods[uid] for uid in state.active]
        how["checkpoint"] = saved.saved(state, there)
    elif state.chance(0.08):
        how["lost"] = True
    if before and state.chance(0.7):
        back = [resource for resource in sorted(before) if state.chance(0.85)]
        state.rng.shuffle(back)
        how["before"] = []
        for resource in back:
            described = returned(state, resource)
            if state.chance(0.2):
                described["devices"] = devices.changed_list(
                    state, described["devices"] or [], resource
                )
            state.registered(resource, described)
            how["before"].append({"resource": resource, **copy.deepcopy(described)})
    return {"restart": how}


_MAKERS: Final[tuple[Maker, ...]] = (
    admit, again, start, finish, delete, retire, change_list, change_old_list,
    register, watch, stop, stop_old, grace, restart,
)  # fmt: skip
_WEIGHTS: Final = (16, 4, 14, 2, 3, 6, 9, 3, 5, 4, 4, 4, 3, 6)

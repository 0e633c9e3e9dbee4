"""Make plugins, their responses and their device lists."""

from __future__ import annotations

import base64
from typing import Final

from devicemanager.core.runoptions import ContainerSettings, DeviceSpec, Mount
from devicemanager.kubelet.wire import settings as wire
from tools.differential.generating.state import Plain, State

_PREFERRED: Final = (*["lexical"] * 4, *["reverse"] * 4, "", "short", "garbage", "error", "listed")
_ODD_HEALTH: Final = ("Unknown", "healthy", "", "Healthy ")


def plugin(state: State, resource: str) -> Plain:
    """Return a plugin with a device list."""
    rng = state.rng
    made: Plain = {"devices": device_list(state, resource), "preferred": rng.choice(_PREFERRED)}
    if state.chance(0.05):
        made["allocate_error"] = "no allocation for you"
    elif state.chance(0.04):
        made["empty_reply"] = True
    if state.chance(0.3):
        made["pre_start"] = True
        if state.chance(0.25):
            made["pre_start_error"] = "not ready"
    if state.chance(0.5):
        made["response"] = base64.b64encode(_response(state, resource)).decode()
    return made


def _response(state: State, resource: str) -> bytes:
    """Return an Allocate response. Each map has one entry, because some kubelet versions write
    several entries in random order."""
    rng = state.rng
    short = resource.rpartition("/")[2]
    return wire.settings_to_bytes(
        ContainerSettings(
            envs={rng.choice(("A", "B", short.upper())): rng.choice(("1", "2"))},
            mounts=tuple(
                Mount(
                    container_path=f"/{rng.choice(('lib', short, 'a', 'z'))}",
                    host_path=f"/host/{short}",
                    read_only=state.chance(0.5),
                )
                for _ in range(rng.randint(0, 3))
            ),
            devices=tuple(
                DeviceSpec(
                    container_path=f"/dev/{rng.choice(('x', short, 'a', 'z'))}",
                    host_path=f"/dev/{short}",
                    permissions=rng.choice(("rw", "r", "rwm")),
                )
                for _ in range(rng.randint(0, 3))
            ),
            annotations={rng.choice(("a", short)): "1"} if state.chance(0.4) else {},
            cdi_devices=tuple(
                f"{resource}={rng.choice('abc')}" for _ in range(rng.choice((0, 0, 1, 2, 3)))
            ),
        )
    )


def device_list(state: State, resource: str) -> list[Plain]:
    """Return a device list. Most lists are long enough for several pods."""
    rng = state.rng
    count = rng.choice((0, 1, 2, 3, 4, 4, 5, 6, 8, 8, 12))
    short = resource.rpartition("/")[2]
    # Sometimes several resources have the same device IDs: health updates name only the ID.
    stem = "dev" if state.chance(0.15) else short
    topology = rng.choice(("none", "all", "all", "some"))
    devices = [
        {
            "id": f"{stem}-{number:02}",
            "health": "Unhealthy" if state.chance(0.08) else "Healthy",
            "numa": _numa(state, topology),
        }
        for number in range(count)
    ]
    return _odd(state, devices)


def _numa(state: State, topology: str) -> list[int] | None:
    rng = state.rng
    if topology == "none" or (topology == "some" and state.chance(0.4)):
        return None
    nodes = state.numa
    if state.chance(0.03):
        return rng.choice(([], [max(nodes) + 1], [-1], [nodes[0], nodes[0]], [1024]))
    count = 2 if len(nodes) > 1 and state.chance(0.15) else 1
    return sorted(rng.sample(nodes, count))


def _odd(state: State, devices: list[Plain]) -> list[Plain]:
    """Sometimes change a list: a duplicate ID, an unknown health, or only a negative NUMA node."""
    rng = state.rng
    if not devices or not state.chance(0.2):
        return devices
    kind = rng.choice(("twice", "health", "negative", "off"))
    chosen = rng.choice(devices)
    if kind == "twice":
        other = "Unhealthy" if chosen["health"] == "Healthy" else "Healthy"
        copy = {**chosen, "health": rng.choice((other, other, chosen["health"]))}
        devices.insert(rng.randint(0, len(devices)), copy)
    elif kind == "health":
        chosen["health"] = rng.choice(_ODD_HEALTH)
    else:
        lone = [-1] if kind == "negative" else [max(state.numa) + 1]
        for device in devices if state.chance(0.3) else [chosen]:
            device["numa"] = lone
    return devices


def changed_list(state: State, devices: list[Plain], resource: str) -> list[Plain]:
    """Return the list with some changes, or sometimes a new list."""
    if state.chance(0.1):
        return device_list(state, resource)
    flips, drops = state.rng.choice(((0.3, 0.0), (0.1, 0.1), (0.0, 0.25), (0.0, 0.0)))
    changed = []
    for device in devices:
        if state.chance(drops):
            continue
        if state.chance(flips):
            health = "Healthy" if device["health"] != "Healthy" else "Unhealthy"
            device = {**device, "health": health}
        changed.append(device)
    return _odd(state, [dict(each) for each in changed])

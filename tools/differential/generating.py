"""Generate random scenarios with small nodes and all kinds of steps."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from typing import Any, Final

from devicemanager.core.runoptions import ContainerSettings, DeviceSpec, Mount
from devicemanager.kubelet.wire import settings as wire

Plain = dict[str, Any]

_RESOURCES: Final = ("vendor.com/gpu", "vendor.com/nic", "other.org/fpga")
_POLICIES: Final = ("none", "best-effort", "restricted", "single-numa-node")
# The order matters: it decides which scenario a seed generates.
_PREFERRED: Final = (*[""] * 2, *["lexical"] * 2, *["reverse"] * 2, "short", "garbage", "error")
_NODES: Final = ((0,), (0, 1), (0, 1), (0, 1, 2, 3), (0, 1, 2, 3), (0, 2, 5), tuple(range(8)))


def scenarios(seed: int, count: int, version: int) -> Iterator[Plain]:
    """Yield scenarios for a minor version; each depends only on the seed and its number."""
    for number in range(count):
        yield scenario(f"{seed}-{number}", version)


def scenario(name: str, version: int) -> Plain:
    """Return the scenario of this name, which seeds all random choices."""
    return _Maker(random.Random(name), name, version).scenario()


class _Maker:
    def __init__(self, rng: random.Random, name: str, version: int) -> None:
        self._rng = rng
        self._name = name
        self._version = version
        self._pods: list[str] = []
        self._active: list[str] = []
        self._plugins: dict[str, list[Plain]] = {}
        self._replaced: set[str] = set()
        self._gone: list[str] = []
        self._count = 0

    def scenario(self) -> Plain:
        rng = self._rng
        nodes = list(rng.choice(_NODES))
        resources = list(_RESOURCES[: rng.choice((1, 1, 2, 2, 3))])
        self._nodes = nodes
        made: Plain = {
            "id": self._name,
            "numa_nodes": nodes,
            "policy": rng.choice(_POLICIES),
            "scope": rng.choice(("container", "pod")),
            "policy_options": self._options(),
            "resources": {resource: self._plugin(resource) for resource in resources},
            "steps": [],
        }
        # The reference indexes distances by NUMA node ID and panics if IDs have gaps (Q28).
        if nodes == list(range(len(nodes))) and rng.random() < 0.8:
            made["numa_distances"] = self._distances()
        if rng.random() < 0.3:
            made["quiet"] = True
        if self._version >= 31 and rng.random() < 0.5:
            made["feature_gates"] = {"ResourceHealthStatus": True}
        if 26 <= self._version < 28 and rng.random() < 0.7:
            names = ("Options", "AlphaOptions")
            made["feature_gates"] = {f"TopologyManagerPolicy{each}": True for each in names}
        for resource, plugin in made["resources"].items():
            self._plugins[resource] = plugin["devices"]
        for _ in range(rng.randint(1, 7)):
            made["steps"].append(self._step())
        return made

    def _options(self) -> Plain:
        rng = self._rng
        if self._version < 26:
            return {}
        # At most one is wrong: of two, the reference reports one at random.
        found = {}
        if rng.random() < 0.3:
            found["prefer-closest-numa-nodes"] = rng.choice(("true", "true", "false", "maybe"))
        if found.get("prefer-closest-numa-nodes") == "maybe":
            return found
        if rng.random() < 0.1:
            found["max-allowable-numa-nodes"] = rng.choice(("8", "9", "7", "many"))
        elif rng.random() < 0.02:
            found["no-such-option"] = "true"
        return found

    def _distances(self) -> list[list[int]]:
        rng, nodes = self._rng, self._nodes
        near = (11, 20, 21, 32)
        return [[10 if a == b else rng.choice(near) for b in nodes] for a in nodes]

    # -- plugins ---------------------------------------------------------------------

    def _plugin(self, resource: str) -> Plain:
        rng = self._rng
        made: Plain = {
            "devices": self._devices(resource),
            "preferred": rng.choice(_PREFERRED),
            "allocate_error": "no allocation for you" if rng.random() < 0.06 else "",
        }
        if rng.random() < 0.05:
            made["empty_reply"] = True
        if rng.random() < 0.25:
            made["pre_start"] = True
            made["pre_start_error"] = "not ready" if rng.random() < 0.3 else ""
        if rng.random() < 0.4:
            made["response"] = base64.b64encode(self._response(resource)).decode()
        return made

    def _response(self, resource: str) -> bytes:
        """Return a response with one entry per map: some versions write more in random order."""
        rng = self._rng
        short = resource.rpartition("/")[2]
        return wire.settings_to_bytes(
            ContainerSettings(
                envs={rng.choice(("A", "B", short.upper())): rng.choice(("1", "2"))},
                mounts=tuple(
                    Mount(
                        container_path=f"/{rng.choice(('lib', short))}",
                        host_path=f"/host/{short}",
                        read_only=rng.random() < 0.5,
                    )
                    for _ in range(rng.randint(0, 2))
                ),
                devices=tuple(
                    DeviceSpec(
                        container_path=f"/dev/{rng.choice(('x', short))}",
                        host_path=f"/dev/{short}",
                        permissions=rng.choice(("rw", "r", "rwm")),
                    )
                    for _ in range(rng.randint(0, 2))
                ),
                annotations={rng.choice(("a", short)): "1"} if rng.random() < 0.4 else {},
                cdi_devices=tuple(
                    f"{resource}={rng.choice('abc')}" for _ in range(rng.choice((0, 0, 1, 2)))
                ),
            )
        )

    def _devices(self, resource: str) -> list[Plain]:
        rng = self._rng
        count = rng.choice((0, 1, 2, 3, 4, 4, 6, 8, 12))
        short = resource.rpartition("/")[2]
        # Sometimes several resources have the same device IDs: health updates name only the ID.
        stem = "dev" if rng.random() < 0.15 else short
        topology = rng.choice(("none", "all", "all", "some"))
        return [
            {
                "id": f"{stem}-{number:02}",
                "health": "Unhealthy" if rng.random() < 0.12 else "Healthy",
                "numa": self._numa(topology),
            }
            for number in range(count)
        ]

    def _numa(self, topology: str) -> list[int] | None:
        rng = self._rng
        if topology == "none" or (topology == "some" and rng.random() < 0.4):
            return None
        if rng.random() < 0.03:
            return []
        if rng.random() < 0.02:
            return [max(self._nodes) + 1]
        count = 2 if len(self._nodes) > 1 and rng.random() < 0.15 else 1
        return sorted(rng.sample(self._nodes, count))

    # -- steps -----------------------------------------------------------------------

    def _step(self) -> Plain:
        """Return a step that is possible now, most often an admission."""
        rng = self._rng
        kinds = ["admit"] * 8 + ["list"] * 2 + ["register"]
        if self._active:
            kinds += ["start", "start", "finish", "delete", "restart", "restart", "reboot"]
        if self._plugins:
            kinds += ["stop"]
        if self._replaced:
            kinds += ["stop_old"] * 3
        if self._gone:
            kinds += ["register"] * 6
        made: Plain = getattr(self, f"_{rng.choice(kinds)}")()
        return made

    def _admit(self) -> Plain:
        rng = self._rng
        uid = f"pod-{len(self._pods)}"
        self._pods.append(uid)
        self._active.append(uid)
        inits = [
            self._container(f"init-{number}") | {"restartable": rng.random() < 0.4}
            for number in range(rng.choice((0, 0, 0, 1, 1, 2)))
        ]
        apps = [self._container(f"main-{number}") for number in range(rng.choice((1, 1, 2, 3)))]
        return {"admit": {"uid": uid, "containers": apps, "init_containers": inits}}

    def _container(self, name: str) -> Plain:
        rng = self._rng
        names = [*_RESOURCES[:2], *self._plugins]
        limits = {
            resource: rng.choice((0, 1, 1, 1, 2, 2, 3, 4, 5))
            for resource in names
            if rng.random() < 0.6
        }
        if rng.random() < 0.2:
            limits["cpu"] = 1
        return {"name": name, "limits": limits}

    def _list(self) -> Plain:
        if not self._plugins:
            return self._admit()
        resource = self._rng.choice(sorted(self._plugins))
        return {"list": {"resource": resource, "devices": self._changed(resource)}}

    def _changed(self, resource: str) -> list[Plain]:
        """Return the previous list with some changes, or sometimes a new one."""
        rng = self._rng
        devices = self._plugins[resource]
        if rng.random() < 0.2:
            devices = self._devices(resource)
        changed = []
        for device in devices:
            if rng.random() < 0.1:
                continue
            flips = rng.random() < 0.2
            health = {"Healthy": "Unhealthy", "Unhealthy": "Healthy"}[device["health"]]
            changed.append({**device, "health": health} if flips else device)
        self._plugins[resource] = changed
        return changed

    def _register(self) -> Plain:
        rng = self._rng
        if rng.random() < 0.1:
            version = rng.choice(("v9", "v1beta1 "))
            return {"register": {"resource": _RESOURCES[0], "version": version}}
        if rng.random() < 0.05:
            name = rng.choice(("gpu", "kubernetes.io/x", "requests.vendor.com/x"))
            return {"register": {"resource": name, "version": "v1beta1"}}
        resource = rng.choice(self._gone or [*sorted(self._plugins), *_RESOURCES[:2]])
        described = self._plugin(resource)
        if rng.random() < 0.6 and self._plugins.get(resource):
            described["devices"] = self._plugins[resource]
        if resource in self._plugins:
            self._replaced.add(resource)
        if resource in self._gone:
            self._gone.remove(resource)
        self._plugins[resource] = described["devices"]
        return {
            "register": {
                "resource": resource,
                **described,
                **({"same_socket": True} if rng.random() < 0.2 else {}),
            }
        }

    def _stop(self) -> Plain:
        resource = self._rng.choice(sorted(self._plugins))
        del self._plugins[resource]
        self._replaced.discard(resource)
        self._gone.append(resource)
        return {"stop": resource}

    def _stop_old(self) -> Plain:
        resource = self._rng.choice(sorted(self._replaced))
        self._replaced.discard(resource)
        return {"stop_old": resource}

    def _start(self) -> Plain:
        return {"start": self._rng.choice(self._active)}

    def _finish(self) -> Plain:
        return {"finish": self._end_pod()}

    def _delete(self) -> Plain:
        return {"delete": self._end_pod()}

    def _end_pod(self) -> str:
        uid = self._rng.choice(self._active)
        self._active.remove(uid)
        return uid

    def _restart(self) -> Plain:
        return self._restarted("restart")

    def _reboot(self) -> Plain:
        return self._restarted("reboot")

    def _restarted(self, how: str) -> Plain:
        self._gone += sorted(self._plugins)
        self._plugins.clear()
        self._replaced.clear()
        return {"restart": how}

"""Random histories of a node whose plugins are third-party programs.

A program decides which devices it lists and prefers. So a history has only events of the node: pods
are admitted, run and end; the program is killed and restarts; the kubelet restarts. A container
requests all devices of a resource. Otherwise nearly every fact would be a random choice of the
kubelet.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from string import Template
from typing import Final

from tools.differential.generating import machines
from tools.differential.generating.state import Plain, State

RESOURCES: Final[Mapping[str, int]] = {"one": 1, "two": 2, "three": 3, "eight": 8}
"""Number of devices by resource name, without its domain."""
DOMAIN: Final = "real.example"


def histories(command: str, seed: int, count: int, version: int) -> Iterator[Plain]:
    """Yield scenarios for a minor version.

    ``command`` starts a plugin of one resource. ``$DIRECTORY`` is replaced by the plugin
    directory, ``$NAME`` by the resource's name without the domain ``real.example``, and
    ``$COUNT`` by its number of devices.
    """
    for number in range(count):
        yield _History(command, f"real-{seed}-{number}", version).scenario()


class _History:
    def __init__(self, command: str, name: str, version: int) -> None:
        self._name = name
        self._command = command
        self._state = State(random.Random(name), version)
        self._names = self._state.rng.sample(sorted(RESOURCES), self._state.rng.choice((1, 2, 3)))

    def scenario(self) -> Plain:
        machine = machines.machine(self._state)
        made: Plain = {
            "id": self._name,
            **{key: value for key, value in machine.items() if key not in ("other", "node")},
            "feature_gates": {"ResourceHealthStatus": True},
            "resources": {self._resource(name): self._plugin(name) for name in self._names},
        }
        for name in self._names:
            self._state.registered(self._resource(name), {})
        made["steps"] = [self._step() for _ in range(self._state.rng.randint(6, 14))]
        return made

    @staticmethod
    def _resource(name: str) -> str:
        return f"{DOMAIN}/{name}"

    def _plugin(self, name: str) -> Plain:
        words = Template(self._command).safe_substitute(NAME=name, COUNT=RESOURCES[name])
        return {"program": words.split(), "devices": None}

    def _step(self) -> Plain:
        state, rng = self._state, self._state.rng
        kinds = {"admit": 6, "restart": 1.5}
        kinds |= {"start": 3, "finish": 1, "delete": 2} if state.active else {}
        kinds |= {"stop": 1} if state.plugins else {}
        kinds |= {"register": 3, "grace": 1} if state.away else {}
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        step = getattr(self, f"_{kind}")()
        if rng.random() < 0.5:
            step["lists"] = True
        return step  # type: ignore[no-any-return]

    def _admit(self) -> Plain:
        rng = self._state.rng
        uid = self._state.new_uid()
        if self._state.deleted and rng.random() < 0.2:
            uid = rng.choice(self._state.deleted)
        apps = [self._container(f"main-{number}") for number in range(rng.choice((1, 2)))]
        pod: Plain = {"uid": uid, "containers": apps, "init_containers": []}
        if rng.random() < 0.4:
            init = self._container("init-0") | {"restartable": rng.random() < 0.4}
            pod["init_containers"].append(init)
        self._state.admitted(pod)
        return {"admit": pod}

    def _container(self, name: str) -> Plain:
        count = min(self._state.rng.choice((0, 1, 1, 1, 2)), len(self._names))
        names = self._state.rng.sample(self._names, count)
        return {"name": name, "limits": {self._resource(each): RESOURCES[each] for each in names}}

    def _start(self) -> Plain:
        return {"start": self._state.rng.choice(self._state.active)}

    def _finish(self) -> Plain:
        uid = self._state.rng.choice(self._state.active)
        self._state.active.remove(uid)
        return {"finish": uid}

    def _delete(self) -> Plain:
        uid = self._state.rng.choice(self._state.active)
        self._state.gone(uid)
        return {"delete": uid}

    def _stop(self) -> Plain:
        resource = self._state.rng.choice(sorted(self._state.plugins))
        self._state.left(resource)
        return {"stop": resource}

    def _register(self) -> Plain:
        resource = self._state.rng.choice(sorted(self._state.away))
        self._state.registered(resource, {})
        return {"register": self._registration(resource)}

    def _registration(self, resource: str) -> Plain:
        return {"resource": resource, **self._plugin(resource.partition("/")[2])}

    def _grace(self) -> Plain:
        return {"grace": 360}

    def _restart(self) -> Plain:
        rng = self._state.rng
        self._state.restarted()
        back = [each for each in sorted(self._state.away) if rng.random() < 0.6]
        for resource in back:
            self._state.registered(resource, {})
        how: Plain = {"before": [self._registration(each) for each in back]}
        if rng.random() < 0.3:
            how["reboot"] = True
        if rng.random() < 0.1:
            how["lost"] = True
        return {"restart": how}

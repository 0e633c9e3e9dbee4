"""Random scenarios of the DRA manager.

A scenario has claims, pods that use them, drivers and operations. Most claims are allocated and
reserved, and most drivers respond correctly. Otherwise scenarios would not get past the first
error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import attrs

from tools.differential.dra.files import state_file

Plain = dict[str, Any]

_DRIVERS: Final = ("fpga.example.com", "gpu.example.com", "net.example.com")
_CODES: Final = ("ABORTED", "FAILED_PRECONDITION", "INTERNAL", "UNAVAILABLE")
_HEALTHS: Final = ("HEALTHY", "UNHEALTHY", "UNKNOWN")
_LONG: Final = "ä" * 513
"""Message whose limit in bytes falls inside a character."""


def scenarios(seed: int, count: int, minor: int) -> Iterator[Plain]:
    """Yield random scenarios for kubelets of a minor version."""
    for number in range(count):
        yield scenario(f"dra-{seed}-{number}", minor)


def scenario(name: str, minor: int) -> Plain:
    """Return the scenario with this name. It depends only on the arguments."""
    return _Maker(Random(f"{name} {minor}"), minor).scenario(name)


@attrs.define
class _Maker:
    random: Random
    minor: int
    namespace: str = "default"
    gates: dict[str, bool] = attrs.field(factory=dict)
    claims: dict[str, Plain] = attrs.field(factory=dict)
    pods: dict[str, Plain] = attrs.field(factory=dict)
    instances: dict[str, Plain] = attrs.field(factory=dict)

    def scenario(self, name: str) -> Plain:
        self.namespace = self._some("default", "default", "prod")
        self.gates = self._gates()
        for number in range(1, self.random.randint(2, 5)):
            self.claims[f"c{number}"] = self._claim(f"c{number}")
        for number in range(1, self.random.randint(2, 4)):
            self.pods[f"p{number}"] = self._pod(number)
        self._reserve()
        for key in "abcde"[: self.random.randint(1, 5)]:
            self.instances[key] = self._instance()
        return {
            "id": name,
            "gates": self.gates,
            "pods": self.pods,
            "instances": self.instances,
            "ops": list(self._ops()),
        }

    @property
    def _has_health(self) -> bool:
        # In 1.34, the feature is alpha and its status differs in many ways. The mock has that of
        # 1.36.
        return self.minor >= 36

    def _chance(self, chance: float) -> bool:
        return self.random.random() < chance

    def _some(self, *of: Any) -> Any:
        return self.random.choice(of)

    def _gates(self) -> dict[str, bool]:
        gates: dict[str, bool] = {}
        if self.minor >= 36 and self._chance(0.15):
            gates["ResourceHealthStatus"] = False
        if self.minor == 34:
            gates["DRAExtendedResource"] = self._chance(0.5)
        if self.minor >= 36 and self._chance(0.1):
            gates["ResourceHealthStatusMessage"] = False
        if self.minor == 36 and self._chance(0.1):
            gates["DRAExtendedResource"] = False
        if self.minor >= 37 and self._chance(0.3):
            gates["DRAOptionalNodeOperations"] = True
        return gates

    # Objects.

    def _claim(self, name: str) -> Plain:
        results = [self._result() for _ in range(self._some(0, 1, 1, 1, 2, 2, 3))]
        return {
            "namespace": self.namespace,
            "name": name,
            "uid": f"{name}-uid",
            "results": results,
            "reserved": [],
        }

    def _result(self) -> Plain:
        driver = self._some(*_DRIVERS)
        result = {
            "driver": driver,
            "pool": self._some("worker", "other"),
            "device": f"{driver[:3]}-{self.random.randint(0, 3)}",
            "request": self._some("r", "q", "r/sub"),
        }
        if self.minor >= 37 and self._chance(0.15):
            operations = ("NodePrepareResources", "NodeUnprepareResources")
            result["skip"] = self._some(["*"], [operations[0]], [operations[1]], [*operations])
        if self._chance(0.01):
            result["driver"] = ""
        return result

    def _pod(self, number: int) -> Plain:
        names = self.random.sample(sorted(self.claims), self.random.randint(0, len(self.claims)))
        entries: list[Plain] = []
        statuses: list[Plain] = []
        for place, name in enumerate(names):
            self._entry(f"e{place}", name, entries, statuses)
        if names and self._chance(0.06):
            entries.append({"name": "twice", "claim": names[0]})
        pod: Plain = {
            "name": f"pod-{number}",
            "namespace": self.namespace,
            "uid": f"pod-{number}-uid",
            "claims": entries,
            "statuses": statuses,
            "containers": [
                self._container(name, [each["name"] for each in entries])
                for name in ("main", "side", "init")[: self.random.randint(1, 3)]
            ],
        }
        if self.minor >= 34 and self._chance(0.15):
            pod["extended"] = self._extended(pod["containers"])
        return pod

    def _entry(self, entry: str, claim: str, entries: list[Plain], statuses: list[Plain]) -> None:
        kind = self.random.random()
        if kind < 0.75:
            entries.append({"name": entry, "claim": claim})
        elif kind < 0.97:
            entries.append({"name": entry, "template": "template"})
            if self._chance(0.85):
                statuses.append({"name": entry, "claim": claim if self._chance(0.9) else None})
        else:
            entries.append({"name": entry})

    def _container(self, name: str, entries: Sequence[str]) -> Plain:
        uses = []
        for entry in self.random.sample(entries, self.random.randint(0, len(entries))):
            for _ in range(self._some(1, 1, 1, 2)):
                use = {"name": entry}
                if self._chance(0.6):
                    use["request"] = self._some("r", "q", "other")
                if use not in uses:
                    uses.append(use)
        container: Plain = {"name": name, "claims": uses}
        if name == "init":
            container["init"] = True
        return container

    def _extended(self, containers: Sequence[Plain]) -> Plain:
        resources = (
            "example.com/gpu", "deviceclass.resource.kubernetes.io/gpu", "cpu", "hugepages-2Mi",
        )  # fmt: skip
        mappings = []
        for container in containers:
            for resource in self.random.sample(resources, self._some(0, 1, 1, 2)):
                for request in self.random.sample(("r", "q"), self._some(1, 1, 2)):
                    mapping = {"container": container["name"], "resource": resource}
                    mappings.append({**mapping, "request": request})
                container.setdefault("requests", {})[resource] = self._some(0, 1, 2)
        return {"claim": self._some(*sorted(self.claims)), "mappings": mappings}

    def _reserve(self) -> None:
        for pod in self.pods.values():
            for claim in self.claims.values():
                if self._chance(0.95):
                    claim["reserved"].append(pod["uid"])
            for status in pod["statuses"]:
                if status["claim"] and self._chance(0.85):
                    self.claims[status["claim"]]["owner"] = pod["uid"]

    # Drivers.

    def _instance(self) -> Plain:
        services = self._services()
        serves = ["v1", "v1beta1"]
        if self.minor < 33:
            serves = self._some(["v1beta1"], ["v1beta1", "v1alpha4"], ["v1alpha4"])
        elif self._chance(0.05):
            serves = [self._some("v1", "v1beta1")]
        if self._has_health and self._chance(0.4):
            self._add_health(services, serves)
        driver = self._some(*_DRIVERS)
        return {
            "driver": driver,
            "services": services,
            "serves": serves,
            "down": "health" not in str(serves) and self._chance(0.05),
            "prepare": self._behaviour(driver, 0.15),
            "unprepare": self._behaviour(driver, 0.1, devices=False),
        }

    def _services(self) -> list[str]:
        if self.minor < 33:
            return list(
                self._some(
                    ["v1beta1.DRAPlugin"],
                    ["v1alpha3.NodeService", "v1beta1.DRAPlugin"],
                    ["v1alpha3.NodeService"],
                    ["1.0.0"],
                )
            )
        services = self._some(
            ["v1.DRAPlugin", "v1beta1.DRAPlugin"],
            ["v1.DRAPlugin", "v1beta1.DRAPlugin"],
            ["v1beta1.DRAPlugin", "v1.DRAPlugin"],
            ["v1.DRAPlugin"],
            ["v1beta1.DRAPlugin"],
        )
        return [*self._some([], [], [], ["v2.DRAPlugin"], [""]), *services]

    def _add_health(self, services: list[str], serves: list[str]) -> None:
        names = {"health": "v1alpha1.DRAResourceHealth", "health-v1": "v1.DRAResourceHealth"}
        for service in self._some(["health"], ["health-v1"], ["health", "health-v1"]):
            serves.append(service)
            if self._chance(0.9):
                services.append(names[service])

    def _behaviour(self, driver: str, wrong: float, devices: bool = True) -> Plain:
        entries = {}
        for claim in self.claims.values():
            own = [each for each in claim["results"] if each["driver"] == driver]
            uids = [claim["uid"]]
            if self._chance(0.5):
                uids.append(f"{claim['name']}-new-uid")
            for uid in uids if own else ():
                entries[uid] = {"devices": [self._device(each) for each in own] if devices else []}
        behaviour: Plain = {"claims": entries}
        if self._chance(wrong):
            self._misbehave(behaviour)
        return behaviour

    def _device(self, result: Plain) -> Plain:
        device = {"pool": result["pool"], "device": result["device"]}
        name = f"{result['driver']}/dev={result['device']}"
        device["cdi"] = self._some([name], [name], [], [f"{result['driver']}/dev=common", name])
        if self._chance(0.8):
            device["requests"] = [self._some("r", "q", result["request"])]
        if self._chance(0.2):
            device["share_id"] = f"share-{self.random.randint(1, 2)}"
        return device

    def _misbehave(self, behaviour: Plain) -> None:
        uids = [claim["uid"] for claim in self.claims.values()]
        match self.random.randrange(6):
            case 0:
                uids = [*behaviour["claims"]] or uids
                entry = behaviour["claims"].setdefault(self._some(*uids), {"devices": []})
                entry["error"] = self._some("no such device", "busy: <&> ü")
            case 1:
                behaviour["skip"] = [self._some(*uids)]
            case 2:
                behaviour["extra"] = {"zz-uid": {}}
            case 3:
                behaviour["fail"] = {"code": self._some(*_CODES), "message": "driver: not now"}
            case 4 if self._chance(0.3):
                behaviour["hang"] = True
            case _:
                behaviour["claims"] = {}

    # Operations.

    def _ops(self) -> Iterator[Plain]:
        if self._chance(0.12):
            yield {"op": "file", "file": self._file()}
            yield {"op": "restart"}
        yield {"op": "start"}
        first = [{"op": "claim", "claim": claim} for claim in self.claims.values()]
        first += [{"op": "register", "instance": key} for key in self.instances]
        self.random.shuffle(first)
        yield from (op for op in first if self._chance(0.93))
        for _ in range(self.random.randint(4, 22)):
            yield from self._op()

    def _op(self) -> Iterator[Plain]:
        makers = {
            self._prepare: 24,
            self._unprepare: 16,
            self._look: 22,
            self._reconcile: 6,
            self._restart: 4,
            self._change_driver: 14,
            self._change_claim: 6,
            self._disk: 4,
            self._pass_time: 4,
            self._health: 10 if self._has_health else 0,
            self._overlap: 3,
            self._replace_claim: 3,
            self._lose_driver: 4,
        }
        (maker,) = self.random.choices([*makers], [*makers.values()])
        yield from maker()

    def _prepare(self) -> Iterator[Plain]:
        yield {"op": "prepare", "pod": self._some(*self.pods)}

    def _unprepare(self) -> Iterator[Plain]:
        yield {"op": "unprepare", "pod": self._some(*self.pods)}

    def _look(self) -> Iterator[Plain]:
        pod = self._some(*self.pods)
        if self._chance(0.2):
            yield {"op": "might_need_unprepare", "pod": pod}
            return
        container = self._some(*self.pods[pod]["containers"])["name"]
        yield {"op": self._some("container", "pod_resources"), "pod": pod, "container": container}

    def _reconcile(self) -> Iterator[Plain]:
        active = [pod for pod in self.pods if self._chance(0.6)]
        op: Plain = {"op": "reconcile", "active": active}
        if self._chance(0.1):
            op["not_ready"] = True
        yield op

    def _restart(self) -> Iterator[Plain]:
        if self._chance(0.25):
            yield {"op": "file", "file": self._file()}
        yield {"op": "restart"}
        keys = [*self.instances]
        self.random.shuffle(keys)
        yield from ({"op": "register", "instance": key} for key in keys if self._chance(0.9))

    def _file(self) -> str | None:
        pods = [pod["uid"] for pod in self.pods.values()]
        return state_file(self.random, self.claims.values(), pods, share_ids=self.minor >= 35)

    def _change_driver(self) -> Iterator[Plain]:
        key = self._some(*self.instances)
        instance = self.instances[key]
        kind = self.random.random()
        if kind < 0.5:
            method = self._some("prepare", "prepare", "unprepare")
            wrong = self._some(0.0, 1.0)
            behaviour = self._behaviour(instance["driver"], wrong, devices=method == "prepare")
            yield {"op": "behave", "instance": key, method: behaviour}
        elif kind < 0.65:
            yield {"op": "deregister", "instance": key}
        elif kind < 0.8:
            op: Plain = {"op": "register", "instance": key}
            if self._chance(0.2):
                op["services"] = self._some([], ["v3.DRAPlugin"], ["v1.draplugin"], ['a"b\\'])
            yield op
        elif "health" not in str(instance["serves"]):
            yield {"op": self._some("stop", "listen"), "instance": key}

    def _change_claim(self) -> Iterator[Plain]:
        claim = self._some(*self.claims.values())
        kind = self.random.random()
        name = {"namespace": self.namespace, "name": claim["name"]}
        if kind < 0.2:
            yield {"op": "delete_claim", **name}
        elif kind < 0.35:
            yield {"op": "api_error", **name, "code": self._some(403, 500, 7), "message": "no"}
        elif kind < 0.45:
            yield {"op": "api_error", **name, "code": 0}
        else:
            changed = {**claim, "uid": f"{claim['name']}-new-uid" if kind < 0.65 else claim["uid"]}
            if kind > 0.8:
                changed["unallocated"] = True
            elif kind > 0.7:
                changed["reserved"] = []
            yield {"op": "claim", "claim": changed}

    def _disk(self) -> Iterator[Plain]:
        times = self._some(0, 1, 1, 2, 3)
        yield {"op": "disk", "times": times, "message": "no space left on device"}

    def _pass_time(self) -> Iterator[Plain]:
        yield {"op": "advance", "seconds": self._some(1, 14, 29, 31, 60)}

    def _health(self) -> Iterator[Plain]:
        watched = [key for key, each in self.instances.items() if "health" in str(each["serves"])]
        kind = self.random.random()
        if kind < 0.3 or not watched:
            yield {"op": "status", "pod": self._some(*self.pods)}
        elif kind < 0.4:
            yield {"op": "sleep", "seconds": self._some(2, 29, 31)}
        elif kind < 0.45:
            yield {"op": "end_stream", "instance": self._some(*watched)}
        else:
            key = self._some(*watched)
            devices = [self._report(key) for _ in range(self.random.randint(0, 4))]
            yield {"op": "health", "instance": key, "devices": devices}

    def _report(self, key: str) -> Plain:
        driver = self.instances[key]["driver"]
        known = [
            (each["pool"], each["device"])
            for claim in self.claims.values()
            for each in claim["results"]
            if each["driver"] == driver
        ]
        other = (self._some("worker", "other"), f"{driver[:3]}-{self.random.randint(0, 3)}")
        pool, device = self._some(*known, other)
        return {
            "pool": pool,
            "device": device,
            "health": self._some(*_HEALTHS),
            "message": self._some("", "", "hot", _LONG),
            "timeout": self._some(0, 0, 1, 5, -3),
        }

    def _replace_claim(self) -> Iterator[Plain]:
        """Delete a claim that a pod uses, and create another one with its name."""
        claim = self._some(*self.claims.values())
        yield from self._prepare()
        yield {"op": "claim", "claim": {**claim, "uid": f"{claim['name']}-new-uid"}}
        yield from self._prepare()

    def _lose_driver(self) -> Iterator[Plain]:
        """Stop an instance for some time, during which its driver may be called."""
        key = self._some(*self.instances)
        if "health" in str(self.instances[key]["serves"]):
            yield {"op": "deregister", "instance": key}
        else:
            yield {"op": "stop", "instance": key}
        yield from self._some(self._prepare, self._unprepare, self._look)()
        yield {"op": "advance", "seconds": self._some(14, 20)}
        if self._chance(0.7):
            yield {"op": self._some("deregister", "register", "listen"), "instance": key}
        yield {"op": "advance", "seconds": self._some(12, 17, 22)}

    def _overlap(self) -> Iterator[Plain]:
        """Start an operation of one pod while a driver still handles that of another pod."""
        key = self._some(*self.instances)
        method = self._some("prepare", "prepare", "unprepare")
        driver = self.instances[key]["driver"]
        behaviour = self._behaviour(driver, 0.0, devices=method == "prepare")
        yield {"op": "behave", "instance": key, method: {**behaviour, "block": True}}
        begun = {"op": method, "pod": self._some(*self.pods)}
        yield {"op": "begin", "name": "first", "do": begun}
        yield {"op": "behave", "instance": key, method: behaviour}
        for _ in range(self.random.randint(1, 3)):
            yield from self._some(self._prepare, self._unprepare, self._look, self._reconcile)()
        yield {"op": "end", "name": "first"}


def used(scenario: Mapping[str, Any]) -> set[str]:
    """Return the names of the operations in a scenario."""
    return {op["op"] for op in scenario["ops"]}

"""Random allocation problems, in the format of ``tools.replay dra-allocate``.

A problem mixes features, because features interact: counters with shares, constraints with
prioritized lists, taints with All. Pools are small, so that many claims do not fit and the search
backtracks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

Json = dict[str, Any]

NODE = "worker"
_DRIVERS = ("gpu.example.com", "net.example.com")
_MODELS = ("A", "B", "C")
_SIZES = ("5Gi", "10Gi", "20Gi", "40Gi")
_DERIVED = ("derived/a", "derived/b", "gpu.example.com/numa")
"""Names of derived attributes. The last one hides an attribute of devices."""
FEATURES: Final = (
    "DRAAdminAccess",
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions",
    "DRADeviceTaints",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
)
_STABLE = (
    "DRAAdminAccess",
    "DRADeviceTaints",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
)


def problems(seed: int, count: int, minor: int) -> Iterator[Json]:
    """Yield ``count`` problems for a minor version, each with an ID that names its seed."""
    for number in range(count):
        made = _Maker(Random(f"{seed}-{number}"), minor).problem()
        yield {"id": f"{seed}-{number}", **made}


class _Maker:
    """Generator of one problem."""

    def __init__(self, random: Random, minor: int) -> None:
        self._random = random
        self._minor = minor
        self._partitions = self._chance(0.3)
        self._shares = self._chance(0.35)
        self._taints = self._chance(0.25)
        self._lists = self._chance(0.1)
        self._groups = minor >= 37 and self._partitions and self._chance(0.4)
        self._derives = minor >= 37 and self._chance(0.2)
        self._devices: list[tuple[Json, Json]] = []

    def problem(self) -> Json:
        features = self._features()
        # The variant ``stable`` reads pools and slices in random order.
        is_stable = not {*features} - {*_STABLE}
        pools = 1 if is_stable else self._int(1, 3)
        slices = [each for number in range(pools) for each in self._pool(number)]
        if is_stable:
            slices.sort(key=lambda each: str(each["metadata"]["name"]))
        else:
            self._random.shuffle(slices)
        claims = [self._claim(number) for number in range(self._pick((1, 1, 1, 2, 2, 3)))]
        made: Json = {
            "features": features,
            "node": {"name": NODE, "labels": {"zone": self._pick(("a", "b"))}},
            "slices": slices,
            "classes": self._classes(),
            "claims": claims,
        }
        self._use(made)
        return made

    def _features(self) -> list[str]:
        if self._minor < 36:
            return [each for each in _STABLE if self._chance(0.93)]
        if self._chance(0.12) and not self._lists:
            return sorted(self._random.sample(_STABLE, self._int(2, 4)))
        found = [each for each in FEATURES if self._chance(0.96)]
        if self._lists and self._minor >= 36:
            found.append("DRAListTypeAttributes")
        if self._groups and self._chance(0.9):
            found.append("DRADeviceCompatibilityGroups")
        if self._derives and self._chance(0.95):
            found.append("DRADerivedAttributes")
        if self._minor >= 37 and self._chance(0.7):
            found.append("DRAFractionalCapacityRange")
        # Without one of these, upstream would use ``stable``.
        found.append("DRADeviceBindingConditions")
        return sorted({*found})

    # Slices

    def _pool(self, number: int) -> list[Json]:
        driver = self._pick(_DRIVERS)
        name = f"p{number}" if self._chance(0.8) else "shared"
        count = self._pick((1, 1, 1, 2, 3))
        pool = {"name": name, "generation": 1, "resourceSliceCount": count}
        prefix = f"{driver[:3]}-{name}-{number}"
        made = [self._slice(f"{prefix}-{each}", driver, pool) for each in range(count)]
        if self._partitions and self._minor < 36:
            # In 1.34, one slice has both counters and devices.
            counters = self._counters(prefix, driver, pool)["spec"]["sharedCounters"]
            made, pool["resourceSliceCount"] = made[:1], 1
            made[0]["spec"]["sharedCounters"] = counters
        elif self._partitions:
            made.append(self._counters(f"{prefix}-c", driver, pool))
            pool["resourceSliceCount"] += 1
        if self._chance(0.04) and made[1:]:
            made.pop(self._int(0, len(made) - 1))
        if self._chance(0.07):
            made += [self._slice(f"old-{number}", driver, {**pool, "generation": 0})]
        return made

    def _slice(self, name: str, driver: str, pool: Json) -> Json:
        spec: Json = {"driver": driver, "pool": pool, **self._nodes()}
        if spec.pop("perDevice", False):
            spec["perDeviceNodeSelection"] = True
        devices = [
            self._device(f"{name[-3:]}-d{each}" if not self._chance(0.01) else "twice", driver)
            for each in range(self._int(2, 6))
        ]
        if spec.get("perDeviceNodeSelection"):
            for device in devices:
                device |= self._nodes(per_device=True)
        spec["devices"] = devices
        self._devices += [(spec, device) for device in devices]
        return {"metadata": {"name": name}, "spec": spec}

    def _nodes(self, *, per_device: bool = False) -> Json:
        choice = self._random.random()
        if choice < 0.72:
            return {"nodeName": NODE}
        if choice < 0.84:
            return {"allNodes": True}
        if choice < 0.88:
            return {"nodeName": "other"}
        if choice < 0.95 or per_device:
            return {"nodeSelector": {"nodeSelectorTerms": [self._term()]}}
        return {"perDevice": True}

    def _term(self) -> Json:
        operator = self._pick(("In", "NotIn", "Exists", "DoesNotExist", "In"))
        requirement: Json = {"key": self._pick(("zone", "rack")), "operator": operator}
        if operator in ("In", "NotIn"):
            requirement["values"] = self._random.sample(("a", "b", "c"), self._int(1, 2))
        return {"matchExpressions": [requirement]}

    def _counters(self, name: str, driver: str, pool: Json) -> Json:
        sets = [
            {
                "name": f"set{each}",
                "counters": {"memory": {"value": self._pick(_SIZES)}, "cores": {"value": "4"}},
            }
            for each in range(2)
        ]
        return {
            "metadata": {"name": name},
            "spec": {"driver": driver, "pool": pool, "allNodes": True, "sharedCounters": sets},
        }

    def _device(self, name: str, driver: str) -> Json:
        device: Json = {"name": name}
        attributes = {
            "model": {"string": self._pick(_MODELS)},
            "numa": {"int": self._int(0, 2)},
            "fast": {"bool": self._chance(0.5)},
            "ver": {"version": self._pick(("1.0.0", "1.1.0", "2.0.0"))},
        }
        attributes = {key: value for key, value in attributes.items() if self._chance(0.8)}
        if self._chance(0.5):
            attributes["topo.io/root"] = {"string": self._pick(("r0", "r1"))}
        if self._lists and self._chance(0.7):
            attributes["ports"] = {"ints": self._random.sample((1, 2, 3, 4), self._int(1, 3))}
        if attributes:
            device["attributes"] = attributes
        if self._chance(0.7):
            device["capacity"] = {"memory": self._capacity()}
        if self._shares and self._chance(0.7):
            device["allowMultipleAllocations"] = True
        if self._partitions and self._chance(0.7):
            device["consumesCounters"] = [
                {
                    "counterSet": f"set{self._int(0, 1)}" if self._chance(0.995) else "nope",
                    "counters": {"memory": {"value": self._pick(_SIZES)}},
                }
            ]
            if self._groups and self._chance(0.7):
                device["consumesCounters"][0]["compatibilityGroups"] = self._random.sample(
                    ("full", "half", "quarter"), self._int(1, 2)
                )
        if self._taints and self._chance(0.5):
            device["taints"] = [
                {
                    "key": self._pick(("bad", "hot")),
                    "value": self._pick(("", "x")),
                    "effect": self._pick(("NoSchedule", "NoExecute", "None")),
                }
            ]
        if self._chance(0.04):
            device["bindingConditions"] = ["ready"]
            device["bindingFailureConditions"] = ["failed"]
        if self._chance(0.03):
            device["bindsToNode"] = True
        return device

    def _capacity(self) -> Json:
        made: Json = {"value": self._pick(_SIZES)}
        choice = self._random.random()
        if choice < 0.25:
            made["requestPolicy"] = {
                "default": self._pick(("1Gi", "2Gi", "1024Mi")),
                "validRange": self._range(),
            }
        elif choice < 0.4:
            made["requestPolicy"] = {
                "default": "2Gi",
                "validValues": ["2Gi", "4Gi", "10Gi"],
            }
        return made

    def _range(self) -> Json:
        made: Json = {"min": self._pick(("1Gi", "2Gi", "500m"))}
        if self._chance(0.6):
            made["step"] = self._pick(("1Gi", "2Gi", "1G"))
        if self._chance(0.5):
            made["max"] = self._pick(("8Gi", "10Gi"))
        return made

    # Classes and claims

    def _classes(self) -> list[Json]:
        made = []
        for name in ("gpu", "any", "net"):
            spec: Json = {}
            if self._chance(0.4) and name != "any":
                driver = _DRIVERS[name == "net"]
                spec["selectors"] = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
            elif self._chance(0.15):
                spec["selectors"] = [{"cel": {"expression": self._expression()}}]
            if self._chance(0.3):
                spec["config"] = [
                    {"opaque": {"driver": self._pick(_DRIVERS), "parameters": {"c": each}}}
                    for each in range(self._int(1, 2))
                ]
            made.append({"metadata": {"name": name}, "spec": spec})
        return made

    def _claim(self, number: int) -> Json:
        requests = [self._request(f"r{each}") for each in range(self._pick((1, 1, 2, 2, 3)))]
        devices: Json = {"requests": requests}
        constraints = [self._constraint(requests) for _ in range(self._pick((0, 0, 0, 1, 2)))]
        if constraints:
            devices["constraints"] = constraints
        if self._chance(0.3):
            devices["config"] = [self._config(requests, each) for each in range(self._int(1, 3))]
        metadata = {"name": f"c{number}", "namespace": "default", "uid": f"uid-{number}"}
        return {"metadata": metadata, "spec": {"devices": devices}}

    def _request(self, name: str) -> Json:
        if self._chance(0.25):
            subrequests = [
                {"name": f"s{each}", **self._details(in_list=True)}
                for each in range(self._int(1, 3))
            ]
            return {"name": name, "firstAvailable": subrequests}
        details = self._details()
        if self._chance(0.08):
            details["adminAccess"] = True
        return {"name": name, "exactly": details}

    def _details(self, *, in_list: bool = False) -> Json:
        name = self._pick(("gpu", "any", "any", "net")) if self._chance(0.995) else "missing"
        made: Json = {"deviceClassName": name}
        # In 1.34, an All request in a prioritized list always continues with the list's first
        # option.
        if self._chance(0.08) and (self._minor >= 36 or not in_list):
            made["allocationMode"] = "All"
        else:
            made |= {"allocationMode": "ExactCount", "count": self._pick((1, 1, 1, 1, 2, 2, 3))}
            if self._chance(0.01):
                made["count"] = self._pick((17, 33))
        if self._chance(0.4):
            made["selectors"] = [
                {"cel": {"expression": self._expression()}} for _ in range(self._int(1, 2))
            ]
        if self._derives and self._chance(0.8):
            made["derivedAttributes"] = [
                {"name": name, "expression": self._derived()}
                for name in self._random.sample(_DERIVED, self._int(1, 2))
            ]
        if self._taints and self._chance(0.6):
            made["tolerations"] = [self._toleration() for _ in range(self._int(1, 2))]
        if self._chance(0.5 if self._shares else 0.1):
            wanted = self._pick(("1Gi", "2Gi", "3Gi", "5Gi", "9Gi", "2049Mi", "1500m", "1024Mi"))
            made["capacity"] = {"requests": {"memory": wanted}}
        return made

    def _toleration(self) -> Json:
        operator = self._pick(("Exists", "Equal"))
        made: Json = {"operator": operator}
        if operator == "Equal" or self._chance(0.7):
            made["key"] = self._pick(("bad", "hot"))
        if operator == "Equal":
            made["value"] = self._pick(("", "x"))
        if self._chance(0.3):
            made["effect"] = self._pick(("NoSchedule", "NoExecute"))
        return made

    def _expression(self) -> str:
        driver = self._pick(_DRIVERS)
        attributes = f'device.attributes["{driver}"]'
        makers: tuple[Callable[[], str], ...] = (
            lambda: f'{attributes}.?model.orValue("A") == "{self._pick(_MODELS)}"',
            lambda: f"has({attributes}.model)",
            lambda: f"!{attributes}.?fast.orValue(false)",
            lambda: f"{attributes}.?numa.orValue(9) < {self._int(1, 3)}",
            lambda: 'device.attributes["topo.io"].?root.orValue("") == "r0"',
            lambda: f'device.driver == "{driver}"',
            lambda: f'{attributes}.model == "A"' if self._chance(0.15) else "true",
            lambda: "device.allowMultipleAllocations" if self._shares else "true",
            lambda: (
                f'device.capacity["{driver}"].?memory.orValue(quantity("0"))'
                '.isGreaterThan(quantity("9Gi"))'
            ),
            lambda: f'{attributes}.?ver.orValue(semver("0.0.0")).isGreaterThan(semver("1.0.5"))',
        )
        return str(self._pick(makers)())

    def _derived(self) -> str:
        attributes = f'device.attributes["{self._pick(_DRIVERS)}"]'
        makers: tuple[Callable[[], str], ...] = (
            lambda: f"{attributes}.?numa.orValue(0) / 2",
            lambda: f'{attributes}.?model.orValue("A")',
            lambda: f'{attributes}.?model.orValue("A") + device.driver',
            lambda: f"{attributes}.?fast.orValue(false)",
            lambda: f'{attributes}.?ver.orValue(semver("1.0.0"))',
            lambda: f"has({attributes}.ports) ? {attributes}.ports : [1, 2]",
            lambda: f'[{attributes}.?model.orValue("A"), "B"]',
            lambda: f"{attributes}.numa" if self._chance(0.2) else "1",
            lambda: "device.capacity.size()",
            lambda: '"1.5"' if self._chance(0.8) else self._pick(("1.5", "dyn(1u)", "[1, 'a']")),
        )
        return str(self._pick(makers)())

    def _constraint(self, requests: list[Json]) -> Json:
        names = ["model", "numa", "fast", "ver"] + ["ports"] * 4 * self._lists
        name = f"{self._pick(_DRIVERS)}/{self._pick(names)}"
        if self._chance(0.4):
            name = "topo.io/root"
        if self._derives and self._chance(0.7):
            name = self._pick(_DERIVED)
        # 1.34 supports distinctAttribute only with alpha gates.
        distinct = 0.35 if self._minor >= 36 else 0.02
        made: Json = {"distinctAttribute" if self._chance(distinct) else "matchAttribute": name}
        if self._chance(0.35):
            made["requests"] = self._some_names(requests)
        return made

    def _config(self, requests: list[Json], number: int) -> Json:
        made: Json = {"opaque": {"driver": self._pick(_DRIVERS), "parameters": {"x": number}}}
        if self._chance(0.6):
            made["requests"] = self._some_names(requests)
        return made

    def _some_names(self, requests: list[Json]) -> list[str]:
        names = [each["name"] for each in requests]
        names += [
            f"{each['name']}/{sub['name']}"
            for each in requests
            for sub in each.get("firstAvailable", ())
        ]
        return self._random.sample(names, self._int(1, min(2, len(names))))

    # Devices in use

    def _use(self, made: Json) -> None:
        allocated, shared = list[Json](), list[Json]()
        for spec, device in self._devices:
            if not self._chance(0.15):
                continue
            key = {"driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
            if not device.get("allowMultipleAllocations"):
                if key not in allocated:
                    allocated.append(key)
                continue
            share = {**key, "shareID": f"old-{len(shared)}"}
            if "capacity" in device and self._chance(0.8):
                share["consumedCapacity"] = {"memory": self._pick(("1Gi", "3Gi", "10Gi"))}
            shared.append(share)
        made |= {
            name: each for name, each in (("allocated", allocated), ("shared", shared)) if each
        }

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _int(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def _pick(self, choices: Any) -> Any:
        return self._random.choice(choices)

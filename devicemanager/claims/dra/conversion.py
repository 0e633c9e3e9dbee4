"""Convert objects of the API ``devmgmtproto.k8s.io/v1alpha1`` to objects of resource.k8s.io.

In:  pools, classes, claims and configs of v1alpha1.
Out: ResourceSlices, DeviceClasses and ResourceClaims, and notes. A note names an object, and says
     which part has no exact equivalent or what the user must check or change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from devicemanager.claims.v1alpha1 import objects as v1alpha1
from devicemanager.core.quantity import NANOS, Quantity, round_down, round_up

API_VERSION = "resource.k8s.io/v1"
_COUNTERS = "pool"
"""Name of the counter set that replaces the resources of a pool."""
# Limits of the API server for the devices of a slice. The lower limit applies if a device of the
# slice consumes counters.
_PER_SLICE, _PER_CONSUMING_SLICE = 128, 64
# The lookahead excludes an access that is converted already, such as ``device.attributes[…]``.
_ACCESS = re.compile(r"\bdevice\.([A-Za-z_]\w*)\b(?!\s*[.(\[])")
_COMPARISON = re.compile(r"\bdevice\.([A-Za-z_]\w*)\s*(==|!=|<=|>=|<|>)\s*('[^']*'|\"[^\"]*\")")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")

Object = dict[str, Any]


@attrs.define
class Converted:
    """Objects of resource.k8s.io, and notes about parts that have no exact equivalent or that the
    user must check or change."""

    objects: list[Object] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)


def convert(objects: Sequence[v1alpha1.Object]) -> Converted:
    """Convert v1alpha1 objects to objects of resource.k8s.io.

    The result has the ResourceSlices first, then the DeviceClasses, then the ResourceClaims. Its
    notes say what has no exact equivalent, and what the user must check or change.
    """
    return _Converter(objects).run()


class _Converter:
    def __init__(self, objects: Sequence[v1alpha1.Object]) -> None:
        self._pools = [each for each in objects if isinstance(each, v1alpha1.DevicePool)]
        self._classes = [each for each in objects if isinstance(each, v1alpha1.DeviceClass)]
        self._claims = [each for each in objects if isinstance(each, v1alpha1.DeviceClaim)]
        self._configs = {
            each.reference: each for each in objects if isinstance(each, v1alpha1.ConfigObject)
        }
        self._types = {driver: self._types_of(driver) for driver in self._drivers()}
        self._found = Converted()

    def run(self) -> Converted:
        for pool in self._pools:
            self._found.objects += self._slices(pool)
        for class_ in self._classes:
            self._found.objects.append(self._class(class_))
        for claim in self._claims:
            self._found.objects.append(self._claim(claim))
        return self._found

    def _note(self, what: str, text: str) -> None:
        line = f"{what}: {text}"
        # Some notes name the pool and are found for each of its devices.
        if line not in self._found.notes:
            self._found.notes.append(line)

    def _drivers(self) -> set[str]:
        return {each.driver for each in self._pools} | {each.driver for each in self._classes}

    def _types_of(self, driver: str) -> dict[str, str]:
        """Return the type of each attribute of a driver, by name: string, int, version or
        quantity."""
        found = {}
        # From all pools of the driver, because a class selects devices from all of them.
        for pool in self._pools:
            if pool.driver == driver:
                for attributes in (pool.attributes, *(each.attributes for each in pool.devices)):
                    found.update({each.name: _type(each) for each in attributes})
        return found

    # Pools

    def _slices(self, pool: v1alpha1.DevicePool) -> list[Object]:
        what = f'DevicePool "{pool.name}"'
        if pool.available_devices is not None:
            self._note(what, "availableDevices has no equivalent: ignored")
        most = _PER_CONSUMING_SLICE if pool.resources else _PER_SLICE
        parts = [pool.devices[at : at + most] for at in range(0, len(pool.devices), most)]
        count = max(1, len(parts)) + bool(pool.resources)
        made = []
        if pool.resources:
            counters = {
                each.name: {"value": str(_blocks(each.capacity, each.block_size))}
                for each in pool.resources
            }
            # A slice can have either counters or devices, so the counters get a slice of their own.
            shared = [{"name": _COUNTERS, "counters": counters}]
            made.append(self._slice(pool, count, f"{pool.name}-counters", sharedCounters=shared))
        # A pool without devices needs a slice, too: the pool exists only in its slices.
        for number, part in enumerate(parts or [()]):
            devices = [self._device(pool, each) for each in part]
            name = pool.name if len(parts) <= 1 else f"{pool.name}-{number}"
            made.append(self._slice(pool, count, name, devices=devices))
        return made

    def _slice(self, pool: v1alpha1.DevicePool, count: int, name: str, **fields: Any) -> Object:
        where: Object = {"nodeName": pool.node_name} if pool.node_name else {"allNodes": True}
        spec = {
            "driver": pool.driver,
            "pool": {"name": pool.name, "generation": 1, "resourceSliceCount": count},
            **where,
            **fields,
        }
        return _object("ResourceSlice", {"name": name}, spec)

    def _device(self, pool: v1alpha1.DevicePool, device: v1alpha1.Device) -> Object:
        what = f'DevicePool "{pool.name}": device "{device.name}"'
        if len(device.name) > 63 or not _LABEL.match(device.name):
            self._note(what, "the name must be a DNS label of at most 63 characters: rename it")
        merged = {each.name: each for each in (*pool.attributes, *device.attributes)}
        attributes, capacity = {}, dict[str, Object]()
        for name, attribute in merged.items():
            kind, value = _value(attribute)
            # An attribute of resource.k8s.io cannot be a quantity, but CEL can compare capacities.
            if kind == "quantity":
                capacity[name] = {"value": value}
            else:
                attributes[name] = {kind: value}
        for each in device.resources:
            block = str(each.block_size)
            # A range with a step rounds requests up to whole blocks, as v1alpha1 does.
            policy = {"default": block, "validRange": {"min": block, "step": block}}
            total = str(_blocks(each.capacity, each.block_size))
            capacity[each.name] = {"value": total, "requestPolicy": policy}
        made: Object = {"name": device.name}
        if attributes:
            made["attributes"] = attributes
        if capacity:
            made["capacity"] = capacity
        if device.resources:
            made["allowMultipleAllocations"] = True
            if any(_type(each) == "quantity" for each in merged.values()):
                self._note(
                    f'DevicePool "{pool.name}"',
                    "quantity attributes of shared devices become capacities, which each claim"
                    " consumes whole: move them to attributes if claims only compare them",
                )
        if device.requests:
            made["consumesCounters"] = [self._consumed(pool, device)]
        return made

    def _consumed(self, pool: v1alpha1.DevicePool, device: v1alpha1.Device) -> Object:
        blocks = {each.name: each.block_size for each in pool.resources}
        counters = {
            name: {"value": str(_blocks(amount, blocks.get(name, v1alpha1.ONE), up=True))}
            for name, amount in device.requests.items()
        }
        return {"counterSet": _COUNTERS, "counters": counters}

    # Classes

    def _class(self, class_: v1alpha1.DeviceClass) -> Object:
        what = f'DeviceClass "{class_.name}"'
        if class_.device_type:
            self._note(what, "deviceType has no equivalent: claims must name the class")
        # A DeviceClass of resource.k8s.io has no driver, so a selector excludes other drivers.
        selectors = [f'device.driver == "{class_.driver}"']
        selectors += self._selector(what, class_.constraints, {class_.driver})
        spec: Object = {"selectors": [{"cel": {"expression": each}} for each in selectors]}
        configs = list(self._config(what, class_.driver, class_.configs))
        if configs:
            spec["config"] = configs
        return _object("DeviceClass", {"name": class_.name}, spec)

    def _selector(self, what: str, constraints: str, drivers: set[str]) -> Iterator[str]:
        """Yield a selector that replaces the constraints. Add notes for parts that the user must
        check."""
        if not constraints:
            return
        if len(drivers) != 1:
            self._note(what, f"constraints of several drivers: write a selector for {constraints}")
            return
        (driver,) = drivers
        types = self._types.get(driver, {})
        unknown = sorted({*_ACCESS.findall(constraints)} - types.keys())
        if unknown:
            self._note(
                what, f"constraints: no pool has the attribute {', '.join(unknown)}: check its type"
            )
        # Comparisons first: their pattern does not match an access that is replaced already.
        text = _COMPARISON.sub(lambda found: _compared(found, driver, types), constraints)
        text = _ACCESS.sub(lambda found: _access(found[1], driver, types), text)
        names = sorted({*_ACCESS.findall(constraints)})
        # In v1alpha1, a device without the attribute does not match. In resource.k8s.io, the
        # missing attribute would be an error that ends the allocation.
        guards = [f"has({_access(name, driver, types)})" for name in names]
        yield " && ".join([*guards, f"({text})" if guards else text])
        if re.search(r"\bdevice\s*[\[)]|\bin\s+device\b", constraints):
            self._note(
                what, "constraints: 'device' is used as a map: rewrite the constraint by hand"
            )

    def _config(
        self, what: str, driver: str, references: Iterable[v1alpha1.ConfigReference]
    ) -> Iterator[Object]:
        for reference in references:
            found = self._configs.get(reference)
            if found is None:
                self._note(
                    what, f"config {reference.kind} {reference.name} is not in the files: add it"
                )
                continue
            yield {"opaque": {"driver": driver, "parameters": dict(found.content)}}

    # Claims

    def _claim(self, claim: v1alpha1.DeviceClaim) -> Object:
        what = f'DeviceClaim "{claim.id}"'
        if claim.status.allocations:
            self._note(what, "the allocation is not converted: allocate the new claim")
        requests, configs, drivers = [], list[Object](), set[str]()
        for number, instance in enumerate(claim.claims):
            name = instance.name or f"request-{number}"
            options = []
            for detail in instance.details():
                options += self._options(what, detail)
                used = {each.driver for each in self._classes_of(detail)}
                drivers |= used
                for driver in sorted(used)[:1]:
                    own = self._config(what, driver, detail.configs)
                    configs += [{"requests": [name], **each} for each in own]
            requests.append(self._request(what, name, options))
        devices: Object = {"requests": requests}
        constraints = list(self._constraints(what, claim, drivers))
        if constraints:
            devices["constraints"] = constraints
        if configs:
            devices["config"] = configs
        metadata = {"name": claim.metadata.name, "namespace": claim.metadata.namespace}
        return _object("ResourceClaim", metadata, {"devices": devices})

    def _request(self, what: str, name: str, options: list[Object]) -> Object:
        if len(options) == 1:
            return {"name": name, "exactly": options[0]}
        # A subrequest has no field ``adminAccess``.
        for option in options:
            if option.pop("adminAccess", None):
                self._note(what, f"{name}: admin access is removed: alternatives cannot have it")
        named = [{"name": f"option-{place}", **each} for place, each in enumerate(options)]
        return {"name": name, "firstAvailable": named}

    def _classes_of(self, detail: v1alpha1.ClaimDetail) -> list[v1alpha1.DeviceClass]:
        if detail.device_class:
            return [each for each in self._classes if each.name == detail.device_class]
        # A type never selects a class with admin access: a claim must name such a class.
        return [
            each
            for each in sorted(self._classes, key=lambda each: each.name)
            if each.device_type == detail.device_type and not each.admin_access
        ]

    def _options(self, what: str, detail: v1alpha1.ClaimDetail) -> list[Object]:
        """Return one ``firstAvailable`` entry for each class that can serve the request."""
        classes = self._classes_of(detail)
        names = [each.name for each in classes] or [detail.device_class or detail.device_type]
        if not classes:
            self._note(
                what, f"the files have no class for {names[0]}: add the class, or correct the name"
            )
        if len(names) > 1:
            self._note(
                what,
                f"deviceType {detail.device_type}: the classes {', '.join(names)} become"
                " alternatives, so that devices of two classes do not mix",
            )
        count = detail.requests.get(v1alpha1.COUNT, v1alpha1.ONE).nanos // NANOS
        amounts = {n: q for n, q in detail.requests.items() if n != v1alpha1.COUNT}
        if amounts and count > 1:
            self._note(
                what,
                "amounts were for all devices together: now each device must have these amounts",
            )
        if detail.limits:
            self._note(what, "limits have no equivalent: the number of devices is fixed")
        # Without requests, a class with admin access gives all its devices. Only a claim that names
        # the class gets it, so it is the only one in ``classes``.
        every = bool(classes) and classes[0].admin_access and not detail.requests
        made = []
        for place, name in enumerate(names):
            option: Object = {"deviceClassName": name}
            if every:
                option["allocationMode"] = "All"
            else:
                option |= {"allocationMode": "ExactCount", "count": count}
            drivers = {classes[place].driver} if classes else set[str]()
            selectors = list(self._selector(what, detail.constraints, drivers))
            if selectors:
                option["selectors"] = [{"cel": {"expression": each}} for each in selectors]
            if amounts:
                option["capacity"] = {"requests": {n: str(q) for n, q in amounts.items()}}
            if classes and classes[place].admin_access:
                option["adminAccess"] = True
                self._note(
                    what,
                    "admin access: label the namespace resource.kubernetes.io/admin-access=true",
                )
            made.append(option)
        return made

    def _constraints(
        self, what: str, claim: v1alpha1.DeviceClaim, drivers: set[str]
    ) -> Iterator[Object]:
        own = [
            (name, [instance.name or f"request-{number}"])
            for number, instance in enumerate(claim.claims)
            for detail in instance.details()
            for name in detail.match_attributes
        ]
        for attribute, requests in [*((name, []) for name in claim.match_attributes), *own]:
            if len(drivers) != 1:
                self._note(
                    what,
                    f"matchAttributes {attribute}: omitted: the devices have several drivers",
                )
                continue
            (driver,) = drivers
            if self._types.get(driver, {}).get(attribute) == "quantity":
                self._note(
                    what,
                    f"matchAttributes {attribute}: omitted: quantities cannot be matched",
                )
                continue
            made: Object = {"matchAttribute": f"{driver}/{attribute}"}
            if requests:
                made["requests"] = requests
            yield made


def _object(kind: str, metadata: Mapping[str, str], spec: Object) -> Object:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": dict(metadata), "spec": spec}


def _type(attribute: v1alpha1.Attribute) -> str:
    return _value(attribute)[0]


def _value(attribute: v1alpha1.Attribute) -> tuple[str, Any]:
    if attribute.quantity_value is not None:
        return "quantity", str(attribute.quantity_value)
    if attribute.sem_ver_value is not None:
        return "version", attribute.sem_ver_value
    if attribute.int_value is not None:
        return "int", attribute.int_value
    return "string", attribute.string_value or ""


def _blocks(amount: Quantity, block: Quantity, *, up: bool = False) -> Quantity:
    """Round an amount to whole blocks, as v1alpha1 does."""
    rounded = (round_up if up else round_down)(amount.nanos, block.nanos)
    return Quantity(rounded, amount.format)


def _access(name: str, driver: str, types: Mapping[str, str]) -> str:
    kind = "capacity" if types.get(name) == "quantity" else "attributes"
    return f'device.{kind}["{driver}"].{name}'


def _compared(found: re.Match[str], driver: str, types: Mapping[str, str]) -> str:
    name, operator, literal = found.groups()
    function = {"quantity": "quantity", "version": "semver"}.get(types.get(name, ""))
    value = _access(name, driver, types)
    if function is None:
        return f"{value} {operator} {literal}"
    return f"{value}.compareTo({function}({literal})) {operator} 0"

"""Validation rules for objects of the API. Each broken rule is one error with a field path."""

# If the API server has a text for an error, it is used here. All rules are checked, so that a
# user can fix all errors of a file together: a pool can have thousands of devices.

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from devicemanager.claims import cel
from devicemanager.claims.attributes import SemVer
from devicemanager.claims.errors import CompileError
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.core.api.names import is_dns1123_subdomain
from devicemanager.core.quantity import NANOS, Quantity
from devicemanager.objects.manifests.errors import FieldError, invalid, plain, required, shown

MAX_INSTANCES = 32
MAX_ALTERNATIVES = 8
MAX_DEVICES = 20_000
"""Maximum number of devices in one pool: twice as many as any known node has."""

_MAX_NAME = 253
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    "'-' or '.', and must start and end with an alphanumeric character"
)
# Names of drivers, devices, attributes and resources. Devices are often named by PCI address
# (0000:3b:00.0), which is not a DNS label.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][-A-Za-z0-9_./:@+]*\Z")
_NAME_RULE = (
    f"must be at most {_MAX_NAME} letters, digits and any of - _ . / : @ +,"
    " and start with a letter, a digit or _"
)

_Faults = Iterator[FieldError]


def broken_rules(found: api.Object) -> list[FieldError]:
    """Return an error for each rule that an object breaks, in the order of the object's fields."""
    if isinstance(found, api.DevicePool):
        return list(_pool(found))
    if isinstance(found, api.DeviceClass):
        return list(_class(found))
    if isinstance(found, api.DeviceClaim):
        return list(_claim(found))
    return list(_config(found))


def object_name(metadata: api.ObjectMeta) -> str:
    """Return ``namespace/name``, or only the name if the namespace is empty."""
    if not metadata.name or not metadata.namespace:
        return metadata.name
    return f"{metadata.namespace}/{metadata.name}"


def object_line(kind: str, name: str, error: FieldError) -> str:
    """Return an error as one line for the user: object, field and rule."""
    return f"{plain(kind) if kind else 'object'} {shown(name)}: {error}"


def _duplicate(field: str, value: str) -> FieldError:
    return FieldError(field, f"Duplicate value: {shown(value)}")


def _too_many(field: str, number: int, most: int) -> FieldError:
    return FieldError(field, f"Too many: {number}: must have at most {most} items")


def _metadata(metadata: api.ObjectMeta, namespaced: bool) -> _Faults:
    yield from _subdomain("metadata.name", metadata.name)
    if namespaced:
        yield from _subdomain("metadata.namespace", metadata.namespace)
    elif metadata.namespace:
        yield FieldError("metadata.namespace", "Forbidden: this kind is cluster-scoped")


def _subdomain(field: str, name: str) -> _Faults:
    if not name:
        yield required(field)
    elif len(name) > _MAX_NAME:
        yield invalid(field, name, f"must be no more than {_MAX_NAME} characters")
    elif not is_dns1123_subdomain(name):
        yield invalid(field, name, _SUBDOMAIN_RULE)


def _name(field: str, name: str) -> _Faults:
    if not name:
        yield required(field)
    elif len(name) > _MAX_NAME or not _PLAIN_NAME.match(name):
        yield invalid(field, name, _NAME_RULE)


def _unique(names: Iterable[str], field: Callable[[int], str]) -> _Faults:
    seen: set[str] = set()
    for number, name in enumerate(names):
        if name in seen:
            yield _duplicate(field(number), name)
        seen.add(name)


def _under(parent: str, faults: Iterable[FieldError]) -> _Faults:
    for fault in faults:
        yield fault.under(parent)


def _config(found: api.ConfigObject) -> _Faults:
    if not found.api_version:
        yield required("apiVersion")
    if not found.kind:
        yield required("kind")
    yield from _metadata(found.metadata, namespaced=True)


def _pool(pool: api.DevicePool) -> _Faults:
    yield from _metadata(pool.metadata, namespaced=False)
    yield from _name("spec.driver", pool.driver)
    if pool.node_name:
        yield from _subdomain("spec.nodeName", pool.node_name)
    yield from _under("spec", _attributes(pool.attributes))
    yield from _under("spec", _resources(pool.resources))
    if len(pool.devices) > MAX_DEVICES:
        yield _too_many("spec.devices", len(pool.devices), MAX_DEVICES)
        return  # one line instead of thousands
    pool_resources = {resource.name for resource in pool.resources}
    for number, device in enumerate(pool.devices):
        yield from _under(f"spec.devices[{number}]", _device(device, pool_resources))
    names = (device.name for device in pool.devices)
    yield from _unique(names, lambda number: f"spec.devices[{number}].name")


def _device(device: api.Device, pool_resources: set[str]) -> _Faults:
    yield from _name("name", device.name)
    yield from _attributes(device.attributes)
    for name, amount in device.requests.items():
        field = f"requests[{plain(name)}]"
        if name not in pool_resources:
            yield invalid(field, str(amount), "the pool has no resource of this name")
        elif amount.nanos < 0:
            yield invalid(field, str(amount), "must be greater than or equal to 0")
    yield from _resources(device.resources)


def _attributes(attributes: tuple[api.Attribute, ...]) -> _Faults:
    for number, attribute in enumerate(attributes):
        yield from _under(f"attributes[{number}]", _attribute(attribute))
    names = (attribute.name for attribute in attributes)
    yield from _unique(names, lambda number: f"attributes[{number}].name")


def _attribute(attribute: api.Attribute) -> _Faults:
    yield from _name("name", attribute.name)
    number = len(attribute.values())
    if number != 1:
        text = f"exactly one value must be set, not {number}"
        yield invalid("", attribute.name, text)
    if attribute.sem_ver_value is not None:
        try:
            SemVer.parse(attribute.sem_ver_value)
        except ValueError as error:
            yield invalid("semVerValue", attribute.sem_ver_value, str(error))


def _resources(resources: tuple[api.ResourceCapacity, ...]) -> _Faults:
    for number, resource in enumerate(resources):
        field = f"resources[{number}]"
        yield from _under(field, _name("name", resource.name))
        if resource.capacity.nanos < 0:
            text = "must be greater than or equal to 0"
            yield invalid(f"{field}.capacity", str(resource.capacity), text)
        if resource.block_size.nanos <= 0:
            yield invalid(f"{field}.blockSize", str(resource.block_size), "must be greater than 0")
    names = (resource.name for resource in resources)
    yield from _unique(names, lambda number: f"resources[{number}].name")


def _class(found: api.DeviceClass) -> _Faults:
    yield from _metadata(found.metadata, namespaced=False)
    yield from _name("spec.driver", found.driver)
    yield from _name("spec.deviceType", found.device_type)
    yield from _constraints("spec.constraints", found.constraints)
    for number, reference in enumerate(found.configs):
        yield from _under(f"spec.configs[{number}]", _reference(reference, namespaced=True))


def _constraints(field: str, text: str) -> _Faults:
    try:
        cel.compile_v1alpha1(text)
    except CompileError as error:
        yield invalid(field, text, f"the constraint does not compile: {error}")


def _reference(reference: api.ConfigReference, namespaced: bool) -> _Faults:
    if not reference.api_version:
        yield required("apiVersion")
    if not reference.kind:
        yield required("kind")
    yield from _subdomain("name", reference.name)
    if namespaced:
        yield from _subdomain("namespace", reference.namespace)


def _claim(claim: api.DeviceClaim) -> _Faults:
    yield from _metadata(claim.metadata, namespaced=True)
    yield from _under("spec", _match_attributes(claim.match_attributes))
    if not claim.claims:
        yield required("spec.claims", "at least one request")
    if len(claim.claims) > MAX_INSTANCES:
        yield _too_many("spec.claims", len(claim.claims), MAX_INSTANCES)
        return
    for number, instance in enumerate(claim.claims):
        yield from _under(f"spec.claims[{number}]", _instance(instance))
    for number, status in enumerate(claim.status.device_statuses):
        field = f"status.deviceStatuses[{number}]"
        yield from _under(field, device_status_faults(status, claim.status.allocations))


def _instance(instance: api.ClaimInstance) -> _Faults:
    if instance.detail is not None and instance.one_of:
        yield FieldError(
            "oneOf", "Forbidden: must not be set together with the fields of a single request"
        )
        return
    if len(instance.one_of) > MAX_ALTERNATIVES:
        yield _too_many("oneOf", len(instance.one_of), MAX_ALTERNATIVES)
        return
    if instance.detail is not None:
        yield from _detail(instance.detail)
    elif not instance.one_of:
        yield required("deviceClass", "or deviceType, or oneOf")
    for number, detail in enumerate(instance.one_of):
        yield from _under(f"oneOf[{number}]", _detail(detail))


def _detail(detail: api.ClaimDetail) -> _Faults:
    if not detail.device_class and not detail.device_type:
        yield required("deviceClass", "or deviceType")
    if detail.device_class:
        yield from _subdomain("deviceClass", detail.device_class)
    if detail.device_type:
        yield from _name("deviceType", detail.device_type)
    yield from _constraints("constraints", detail.constraints)
    yield from _amounts("requests", detail.requests, least=1)
    yield from _amounts("limits", detail.limits, least=0)
    yield from _limits(detail)
    yield from _match_attributes(detail.match_attributes)
    for number, reference in enumerate(detail.configs):
        yield from _under(f"configs[{number}]", _reference(reference, namespaced=False))


def _amounts(field: str, amounts: Mapping[str, Quantity], least: int) -> _Faults:
    for name, amount in amounts.items():
        where = f"{field}[{plain(name)}]"
        if name == api.COUNT:
            if amount.nanos < NANOS or amount.nanos % NANOS:
                yield invalid(where, str(amount), "must be a whole number of at least 1")
            continue
        for fault in _name("", name):
            yield FieldError(where, fault.text)
        if amount.nanos < least:
            than = "greater than 0" if least else "greater than or equal to 0"
            yield invalid(where, str(amount), f"must be {than}")


def _limits(detail: api.ClaimDetail) -> _Faults:
    # A request without a count is for one device.
    requests = {api.COUNT: api.ONE, **detail.requests}
    for name, limit in detail.limits.items():
        request = requests.get(name)
        if request is not None and limit < request:
            text = f"must be greater than or equal to the request of {request}"
            yield invalid(f"limits[{plain(name)}]", str(limit), text)


def _match_attributes(names: tuple[str, ...]) -> _Faults:
    for number, name in enumerate(names):
        yield from _name(f"matchAttributes[{number}]", name)
    yield from _unique(names, lambda number: f"matchAttributes[{number}]")


def device_status_faults(
    status: api.DeviceStatus, allocations: Iterable[api.DeviceAllocation]
) -> _Faults:
    """Yield an error for each broken rule in an entry of ``deviceStatuses``.

    ``allocations``: the allocated devices of the claim.
    """
    allocated = {(entry.device_pool_name, entry.device_name) for entry in allocations}
    if (status.device_pool_name, status.device_name) not in allocated:
        named = f"{status.device_pool_name}/{status.device_name}"
        yield invalid("deviceName", named, "the device is not allocated to the claim")
    # This check also rejects deviceIPs without deviceIP.
    if status.device_ips and status.device_ips[0] != status.device_ip:
        yield invalid("deviceIPs[0].ip", status.device_ips[0], "must be equal to deviceIP")

"""Convert objects of the API to dicts and YAML; omit fields without a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from devicemanager.claims.v1alpha1 import objects as api

Plain = dict[str, Any]


def to_yaml(objects: Iterable[api.Object]) -> str:
    """Return objects as YAML text with one document per object."""
    import yaml  # only the CLI and control clients write YAML

    documents = [write_object(each) for each in objects]
    return str(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True))


def write_object(found: api.Object) -> Plain:
    """Return an object as a dict, from which ``read_object`` returns an equal object."""
    if isinstance(found, api.ConfigObject):
        return dict(found.content)
    document = {
        "apiVersion": api.API_VERSION,
        "kind": type(found).__name__,
        "metadata": _metadata(found.metadata),
    }
    if isinstance(found, api.DeviceClass):
        return {**document, "spec": _class(found)}
    if isinstance(found, api.DevicePool):
        status = _without_empty(availableDevices=found.available_devices)
        return {**document, "spec": _pool(found), **_without_empty(status=status)}
    spec = {
        **_without_empty(matchAttributes=list(found.match_attributes)),
        "claims": [_instance(instance) for instance in found.claims],
    }
    return {**document, "spec": spec, **_without_empty(status=write_status(found.status))}


def _without_empty(**fields: Any) -> Plain:
    # Like Go's omitempty, so that a document looks like those that users write.
    return {
        name: value
        for name, value in fields.items()
        if value is not None and value != "" and value != [] and value != {}
    }


def _metadata(metadata: api.ObjectMeta) -> Plain:
    named = _without_empty(name=metadata.name, namespace=metadata.namespace, uid=metadata.uid)
    return {**named, **metadata.other}


def _quantities(quantities: api.Quantities) -> Plain:
    return {name: str(amount) for name, amount in quantities.items()}


def _reference(reference: api.ConfigReference) -> Plain:
    return _without_empty(
        apiVersion=reference.api_version,
        kind=reference.kind,
        namespace=reference.namespace,
        name=reference.name,
    )


def _class(found: api.DeviceClass) -> Plain:
    return {
        # In lower case, unlike the malformed field names of the Go type; ``reading`` accepts both.
        "driver": found.driver,
        "deviceType": found.device_type,
        **_without_empty(
            constraints=found.constraints,
            adminAccess=found.admin_access or None,
            configs=[_reference(reference) for reference in found.configs],
        ),
    }


def _pool(pool: api.DevicePool) -> Plain:
    return {
        **_without_empty(nodeName=pool.node_name),
        "driver": pool.driver,
        **_without_empty(
            attributes=_attributes(pool.attributes), resources=_resources(pool.resources)
        ),
        "devices": [_device(device) for device in pool.devices],
    }


def _device(device: api.Device) -> Plain:
    return {
        "name": device.name,
        **_without_empty(
            attributes=_attributes(device.attributes),
            requests=_quantities(device.requests),
            resources=_resources(device.resources),
        ),
    }


def _attributes(attributes: Iterable[api.Attribute]) -> list[Plain]:
    return [
        {
            "name": attribute.name,
            # An empty string is a valid value of an attribute, so only None is omitted.
            **{
                name: value
                for name, value in (
                    ("stringValue", attribute.string_value),
                    ("intValue", attribute.int_value),
                    ("quantityValue", _text(attribute.quantity_value)),
                    ("semVerValue", attribute.sem_ver_value),
                )
                if value is not None
            },
        }
        for attribute in attributes
    ]


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _resources(resources: Iterable[api.ResourceCapacity]) -> list[Plain]:
    return [
        {
            "name": resource.name,
            "capacity": str(resource.capacity),
            **_without_empty(
                blockSize=None if resource.block_size == api.ONE else str(resource.block_size)
            ),
        }
        for resource in resources
    ]


def _instance(instance: api.ClaimInstance) -> Plain:
    detail = {} if instance.detail is None else _detail(instance.detail)
    one_of = [_detail(each) for each in instance.one_of]
    return {**_without_empty(name=instance.name), **detail, **_without_empty(oneOf=one_of)}


def _detail(detail: api.ClaimDetail) -> Plain:
    return _without_empty(
        deviceType=detail.device_type,
        deviceClass=detail.device_class,
        constraints=detail.constraints,
        requests=_quantities(detail.requests),
        limits=_quantities(detail.limits),
        matchAttributes=list(detail.match_attributes),
        configs=[_reference(reference) for reference in detail.configs],
    )


def write_status(status: api.ClaimStatus) -> Plain:
    """Return the status of a claim as a dict with the field names of the API."""
    return _without_empty(
        allocations=[_allocation(entry) for entry in status.allocations],
        classConfigs=[write_object(config) for config in status.class_configs],
        claimConfigs=[write_object(config) for config in status.claim_configs],
        deviceStatuses=[_device_status(entry) for entry in status.device_statuses],
        podNames=list(status.pod_names),
    )


def _allocation(entry: api.DeviceAllocation) -> Plain:
    return {
        "devicePoolName": entry.device_pool_name,
        "deviceName": entry.device_name,
        **_without_empty(allocations=_amounts(entry.allocations)),
    }


def _amounts(entries: Iterable[api.ResourceAllocation]) -> list[Plain]:
    return [{"name": entry.name, "allocation": str(entry.allocation)} for entry in entries]


def _device_status(status: api.DeviceStatus) -> Plain:
    return {
        "devicePoolName": status.device_pool_name,
        "deviceName": status.device_name,
        **_without_empty(
            conditions=[_plain(condition) for condition in status.conditions],
            deviceIP=status.device_ip,
            deviceIPs=[{"ip": ip} for ip in status.device_ips],
            deviceInfo=list(status.device_info),
            allocations=_amounts(status.allocations),
        ),
    }


def _plain(mapping: Mapping[str, Any]) -> Plain:
    return dict(mapping)

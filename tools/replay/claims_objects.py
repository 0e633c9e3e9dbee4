"""The shorthand of claim vectors as the documents that users write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from devicemanager.claims.v1alpha1.objects import API_VERSION
from tools.replay.report import ReplayError

Plain = dict[str, Any]

_VALUES = {
    "string": "stringValue",
    "int": "intValue",
    "quantity": "quantityValue",
    "semver": "semVerValue",
}


def claim(short: Mapping[str, Any]) -> Plain:
    known = _renamed(short, {"name": None, "match": "matchAttributes", "claims": None})
    spec = {**known, "claims": [_instance(each) for each in short["claims"]]}
    return _document("DeviceClaim", {"name": short.get("name", "c"), "namespace": "default"}, spec)


def device_class(name: str, short: Mapping[str, Any]) -> Plain:
    names = {"driver": "driver", "type": "deviceType", "cel": "constraints", "admin": "adminAccess"}
    return _document("DeviceClass", {"name": name}, _renamed(short, names))


def pool(short: Mapping[str, Any]) -> Plain:
    names = {"node": "nodeName", "driver": "driver", **_parts("name", "devices")}
    spec = {**_renamed(short, names), **_attributes_and_resources(short)}
    devices = [one for each in short["devices"] for one in _devices(each)]
    return _document("DevicePool", {"name": short.get("name", "p")}, {**spec, "devices": devices})


def device_status(short: Mapping[str, Any]) -> Plain:
    """A claim that holds one device, with this status of it."""
    held = {"devicePoolName": "p", "deviceName": "d"}
    status = {"allocations": [held], "deviceStatuses": [{**held, **short}]}
    return {**claim({"claims": [{"class": "a"}]}), "status": status}


def _document(kind: str, metadata: Plain, spec: Plain) -> Plain:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _parts(*names: str) -> dict[str, str | None]:
    return dict.fromkeys(["attrs", "resources", *names])


def _renamed(short: Mapping[str, Any], names: Mapping[str, str | None]) -> Plain:
    """The fields under their names on the wire; those without one are left to the caller."""
    if strange := short.keys() - names.keys():
        raise ReplayError(f"the vectors have a field that is not known: {min(strange)}")
    return {str(names[key]): value for key, value in short.items() if names[key]}


def _instance(short: Mapping[str, Any]) -> Plain:
    names = {
        "class": "deviceClass",
        "type": "deviceType",
        "cel": "constraints",
        "requests": "requests",
        "limits": "limits",
        "match": "matchAttributes",
        "oneOf": None,
    }
    one_of = {"oneOf": [_instance(each) for each in short["oneOf"]]} if "oneOf" in short else {}
    return {**_renamed(short, names), **one_of}


def _devices(short: Mapping[str, Any]) -> list[Plain]:
    device = {**_renamed(short, {"name": "name", "requests": "requests", **_parts("repeat")})}
    device.update(_attributes_and_resources(short))
    if "repeat" not in short:
        return [device]
    return [{**device, "name": short["name"] % number} for number in range(short["repeat"])]


def _attributes_and_resources(short: Mapping[str, Any]) -> Plain:
    found: Plain = {}
    if "attrs" in short:
        found["attributes"] = [attribute(*each) for each in short["attrs"].items()]
    if "resources" in short:
        names = {"name": "name", "capacity": "capacity", "block": "blockSize"}
        found["resources"] = [_renamed(each, names) for each in short["resources"]]
    return found


def attribute(name: str, values: Mapping[str, Any]) -> Plain:
    return {"name": name, **_renamed(values, _VALUES)}

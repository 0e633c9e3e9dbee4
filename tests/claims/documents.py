"""Short documents of the API for tests."""

import yaml

from devicemanager.claims.v1alpha1.objects import API_VERSION
from devicemanager.claims.v1alpha1.reading import read_object


def document(kind, name, spec, **metadata):
    meta = {"name": name, **metadata}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": meta, "spec": spec}


def pool(name="p", devices=("a", "b"), **spec):
    listed = [each if isinstance(each, dict) else {"name": each} for each in devices]
    full = {"driver": "d.example.com", "nodeName": "n0", "devices": listed, **spec}
    return document("DevicePool", name, full)


def device(name, **attributes):
    listed = [
        {"name": key, "intValue" if isinstance(value, int) else "stringValue": value}
        for key, value in attributes.items()
    ]
    return {"name": name, "attributes": listed}


def device_class(name="gpu", **spec):
    return document("DeviceClass", name, {"driver": "d.example.com", "deviceType": "gpu", **spec})


def claim(name="c", *instances, **spec):
    listed = list(instances) or [{"deviceClass": "gpu"}]
    return document("DeviceClaim", name, {"claims": listed, **spec})


def config(name="settings", namespace="default", **content):
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "d.example.com/v1", "kind": "Settings", "metadata": meta, **content}


def read(found):
    return read_object(found)


def write(directory, name, *documents):
    """Write a YAML file with these documents; return its path."""
    path = directory / name
    path.write_text(yaml.safe_dump_all(documents))
    return path

"""The reference in docs/claims.md: every field, and constraints that are true as shown."""

import re

import attrs
import pytest
import yaml

from devicemanager.claims import cel
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.claims.v1alpha1.convert import Converter
from devicemanager.claims.v1alpha1.reading import read_object
from tests.paths import ROOT

PAGE = (ROOT / "docs/claims.md").read_text().partition("## Reference\n")[2]
POOL, CLASS, STATUS = [
    document
    for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    for document in yaml.safe_load_all(block)
]
TABLE = PAGE.partition("<!-- constraints")[2].partition("<!-- end")[0]
CONSTRAINTS = [
    row.split(" | ")[1].replace("\\|", "|").strip(" |`") for row in TABLE.splitlines()[4:-1]
]


def unset(found, *, but=()):
    """Return the names of the fields of an object, and of the objects in it, that are not set."""
    names = set()
    for field in attrs.fields(type(found)):
        value = getattr(found, field.name)
        if value in (None, "", (), {}) and field.name not in but:
            names.add(f"{type(found).__name__}.{field.name}")
        for each in value if isinstance(value, tuple) else (value,):
            if attrs.has(type(each)) and type(each).__module__ == api.__name__:
                names |= unset(each, but=but)
    return names


# The metadata of cluster-scoped objects has no namespace; uid and the rest are the user's.
META = ("uid", "namespace", "rest", "other")
VALUES = ("string_value", "int_value", "quantity_value", "sem_ver_value")


@pytest.mark.parametrize("document", [POOL, CLASS], ids=["pool", "class"])
def test_documents_of_the_page_have_every_field(document):
    found = read_object(document)
    metadata = {f"ObjectMeta.{field.name}" for field in attrs.fields(api.ObjectMeta)}
    missing = unset(found, but=VALUES) - metadata
    if document is POOL:
        # Each kind of value is shown once; only the device has requests and attributes.
        shown = {
            name
            for each in (*found.attributes, *found.devices[0].attributes)
            for name in VALUES
            if getattr(each, name) is not None
        }
        assert shown == set(VALUES)
    assert missing == set()


def test_status_of_the_page_has_every_field():
    claim = {
        "apiVersion": api.API_VERSION,
        "kind": "DeviceClaim",
        "metadata": {"name": "c"},
        "spec": {"claims": [{"deviceClass": "half-card"}]},
        "status": {
            "allocations": [{"devicePoolName": "node-1-cards", "deviceName": "half-0"}],
            **STATUS,
        },
    }
    (status,) = read_object(claim).status.device_statuses
    assert unset(status) == set()


@pytest.mark.parametrize("constraint", [CLASS["spec"]["constraints"], *CONSTRAINTS])
def test_constraints_of_the_page_are_true(constraint):
    inventory = Converter().inventory_of([read_object(POOL)], "node-1")
    (device,) = inventory.devices
    assert cel.compile_v1alpha1(constraint).matches(device.attributes)


def test_table_of_constraints_is_not_empty():
    assert len(CONSTRAINTS) == 16

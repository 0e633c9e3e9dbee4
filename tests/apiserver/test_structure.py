"""Types of all fields of resource.k8s.io, and the fields that Go's JSON encoder omits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from devicemanager.apiserver.protobuf import (
    DROP_ZERO,
    INLINE,
    KEEP_EMPTY,
    decode,
    descriptor,
    encode,
    field_type,
    value_of_map,
)
from devicemanager.apiserver.structure import StructureError, decoded, has_structure, pruned
from protos import k8s_resource_v1

KINDS = [
    "ResourceSlice",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "DeviceClass",
    "DeviceTaintRule",
]
VERSIONS = ["v1", "v1beta2", "v1beta1", "v1alpha3"]
OBJECTS = [(f"resource.k8s.io/{version}", kind) for version in VERSIONS for kind in KINDS]
PLAIN: dict[int, tuple[Any, str]] = {
    FieldDescriptor.TYPE_STRING: ("x", "string"),
    FieldDescriptor.TYPE_BOOL: (True, "bool"),
    FieldDescriptor.TYPE_INT64: (7, "int64"),
}
"""Value and Go type of a plain field."""
SPECIAL = {
    "Quantity": "1Gi",
    "Time": "2026-01-02T03:04:05Z",
    "RawExtension": {"a": [1]},
    "FieldsV1": {"f:spec": {}},
}
WRONG: dict[str, list[tuple[Any, str]]] = {
    "string": [(1, "number"), (True, "bool"), ({}, "object"), ([], "array")],
    "bool": [(1, "number"), ("x", "string")],
    "int64": [("7", "string"), (True, "bool"), (1.5, "number 1.5")],
}
"""Values that a field of a Go type cannot have, and their names in errors."""


def full(type_: Any) -> dict[str, Any]:
    """Return an object with all fields of a message."""
    found: dict[str, Any] = {}
    for field in type_.fields:
        if field.name == INLINE:
            found |= full(field.message_type)
        elif (inner := value_of_map(field)) is not None:
            found[field.json_name] = {"k": one(inner)}
        else:
            found[field.json_name] = one(field) if field.has_presence else [one(field)]
    return found


def one(field: Any) -> Any:
    name = field_type(field)
    if name in SPECIAL:
        return SPECIAL[name]
    return full(field.message_type) if name else PLAIN[field.type][0]


def full_object(api_version: str, kind: str) -> dict[str, Any]:
    fields = full(descriptor(api_version, kind))
    return {"apiVersion": api_version, "kind": kind, **fields}


@pytest.mark.parametrize(("api_version", "kind"), OBJECTS)
def test_object_with_all_fields_is_kept_as_it_is(api_version: str, kind: str) -> None:
    assert has_structure(api_version, kind)
    value = full_object(api_version, kind)
    assert decoded(value, api_version, kind, strict=True) == value
    assert pruned(value, api_version, kind) == value
    assert decode(encode(value)) == value


def plain_fields(type_: Any, value: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield each plain field below an object: the object that has it, and its descriptor."""
    for field in type_.fields:
        if field.name == INLINE:
            yield from plain_fields(field.message_type, value)
        elif field.message_type is None:
            if field.has_presence:
                yield value, field
        elif field_type(field) not in SPECIAL:
            below = value[field.json_name]
            inner = value_of_map(field)
            if inner is None:
                below = below if field.has_presence else below[0]
                yield from plain_fields(field.message_type, below)
            elif inner.message_type is not None and field_type(inner) not in SPECIAL:
                yield from plain_fields(inner.message_type, below["k"])


@pytest.mark.parametrize(("api_version", "kind"), OBJECTS)
def test_every_plain_field_accepts_only_its_type(api_version: str, kind: str) -> None:
    value = full_object(api_version, kind)
    fields = [*plain_fields(descriptor(api_version, kind), value)]
    assert len(fields) > 15
    for owner, field in fields:
        name, right = field.json_name, owner[field.json_name]
        go = PLAIN[field.type][1]
        for wrong, described in WRONG[go]:
            owner[name] = wrong
            with pytest.raises(StructureError) as raised:
                decoded(value, api_version, kind)
            text = str(raised.value)
            assert text.startswith(f"json: cannot unmarshal {described} into Go struct field ")
            assert text.endswith(f".{name} of type {go}")
        owner[name] = right


def test_string_and_number_fields_with_a_rule_for_empty_values_exist() -> None:
    types = {
        f"{name}.{field.name}": field.type
        for name, message in vars(k8s_resource_v1).items()
        for field in getattr(getattr(message, "DESCRIPTOR", None), "fields", ())
    }
    assert {types[name] for name in KEEP_EMPTY} == {FieldDescriptor.TYPE_STRING}
    assert {types[name] for name in DROP_ZERO} == {
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_INT32,
        FieldDescriptor.TYPE_BOOL,
    }


POOL = {"name": "", "generation": 0, "resourceSliceCount": 0}


@pytest.mark.parametrize(
    ("kind", "given", "wanted"),
    [
        ("ResourceSlice", {}, {"spec": {"driver": "", "pool": POOL}}),
        (
            "ResourceSlice",
            {
                "nodeSelector": {},
                "devices": [
                    {
                        "capacity": {"k": {}, "l": {"requestPolicy": {"validRange": {}}}},
                        "consumesCounters": [{"counters": {"c": {}}}],
                        "taints": [{}],
                    }
                ],
                "sharedCounters": [{}],
            },
            {
                "spec": {
                    "driver": "",
                    "pool": POOL,
                    "nodeSelector": {"nodeSelectorTerms": None},
                    "devices": [
                        {
                            "name": "",
                            "capacity": {
                                "k": {"value": "0"},
                                "l": {
                                    "value": "0",
                                    "requestPolicy": {"default": None, "validRange": {}},
                                },
                            },
                            "consumesCounters": [
                                {"counterSet": "", "counters": {"c": {"value": "0"}}}
                            ],
                            "taints": [{"key": "", "effect": ""}],
                        }
                    ],
                    "sharedCounters": [{"name": ""}],
                }
            },
        ),
        ("ResourceClaim", {}, {"spec": {"devices": {"requests": None}}, "status": {}}),
        (
            "ResourceClaim",
            {"devices": {"requests": [{"exactly": {}}, {"firstAvailable": [{}]}]}},
            {
                "spec": {
                    "devices": {
                        "requests": [
                            {"name": "", "exactly": {"deviceClassName": ""}},
                            {"name": "", "firstAvailable": [{"name": "", "deviceClassName": ""}]},
                        ]
                    }
                },
                "status": {},
            },
        ),
        (
            "ResourceClaimTemplate",
            {},
            {"spec": {"metadata": {}, "spec": {"devices": {"requests": None}}}},
        ),
        ("DeviceClass", {}, {"spec": {}}),
        ("DeviceTaintRule", {}, {"spec": {"taint": {"key": "", "effect": ""}}, "status": {}}),
    ],
)
def test_fields_that_json_always_contains(
    kind: str, given: dict[str, Any], wanted: dict[str, Any]
) -> None:
    api_version = "resource.k8s.io/v1"
    wanted = {"apiVersion": api_version, "kind": kind, **wanted}
    assert pruned({"spec": given}, api_version, kind) == wanted
    if not given:
        assert pruned({}, api_version, kind) == wanted


def test_json_of_a_claim_always_contains_conditions_of_devices() -> None:
    value: dict[str, Any] = {"status": {"allocation": {}, "devices": [{}, {"conditions": [{}]}]}}
    assert pruned(value, "resource.k8s.io/v1", "ResourceClaim")["status"] == {
        "allocation": {"devices": {}},
        "devices": [
            {"conditions": None},
            {"conditions": [{"lastTransitionTime": None, "message": ""}]},
        ],
    }

"""Decode request bodies (JSON, YAML, protobuf) as a real API server does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from devicemanager.apiserver.errors import StatusError, patch_mismatch, undecodable
from devicemanager.apiserver.kinds import Target
from devicemanager.apiserver.protobuf import CONTENT_TYPE, ProtobufError, decode
from devicemanager.apiserver.store import Object
from devicemanager.apiserver.structure import (
    StructureError,
    decoded,
    has_structure,
    mismatch,
    quantity,
)
from devicemanager.core.messages import go_printed
from devicemanager.objects.dra.errors import go_json

__all__ = ["check_kind", "parsed", "typed", "typed_patch"]

_JSON: Final = "application/json"
_YAML: Final = "application/yaml"
_ENCODINGS: Final = (_JSON, _YAML, CONTENT_TYPE)
_JSON_PATCH: Final = "application/json-patch+json"
_NO_KIND: Final = "couldn't get version/kind; json parse error"
_LIST: Final = (
    "json: cannot unmarshal array into Go value of type struct { APIVersion string "
    '"json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)


def parsed(target: Target, method: str, body: bytes, content: str) -> Any:
    """Return the object in a body, or the steps of a JSON patch.

    For POST and PUT, an empty body is an error. For all other methods, return ``{}`` for an empty
    body.

    ``content``: the header ``Content-Type``, which names the encoding of the body. Raises
    StatusError if the encoding is unknown, or if the body cannot be decoded.
    """
    if not body and method not in ("POST", "PUT"):
        return {}
    type_ = content.partition(";")[0].strip() or _JSON
    if method == "PATCH":
        return _json(target, body, may_be_list=type_ == _JSON_PATCH)
    if type_ == CONTENT_TYPE:
        return _protobuf(target, body)
    if type_ == _YAML:
        return _yaml(target, body)
    if type_ != _JSON:
        accepted = ", ".join(_ENCODINGS)
        text = "the body of the request was in an unknown format - accepted media types include: "
        raise StatusError(415, text + accepted)
    return _json(target, body)


def _json(target: Target, body: bytes, *, may_be_list: bool = False) -> Any:
    try:
        found = json.loads(body)
    except ValueError as error:
        raise undecodable(target, f"{_NO_KIND}: {_reason(error)}", body) from None
    if isinstance(found, dict) or (may_be_list and isinstance(found, list)):
        return found
    raise undecodable(target, f"{_NO_KIND}: {_LIST}", body)


def _reason(error: ValueError) -> str:
    """Return the message of Go's decoder for a text that Python's decoder rejects."""
    if not isinstance(error, json.JSONDecodeError):
        return "invalid character in string"
    if error.pos >= len(error.doc.rstrip()):
        return "unexpected end of JSON input"
    return f"invalid character {error.doc[error.pos]!r} looking for beginning of value"


def _yaml(target: Target, body: bytes) -> Object:
    # Imported here, because most clients send JSON or protobuf.
    from devicemanager.objects.manifests.documents import load_documents
    from devicemanager.objects.manifests.errors import ManifestError

    try:
        # It limits depth and aliases, which could fill the memory.
        documents = load_documents(body.decode())
    except (ManifestError, UnicodeDecodeError) as error:
        raise undecodable(target, f"yaml: {error}", body) from None
    found = documents[0] if len(documents) == 1 else None
    if not isinstance(found, dict):
        raise undecodable(target, f"{_NO_KIND}: {_LIST}", body)
    return found


def _protobuf(target: Target, body: bytes) -> Object:
    try:
        return decode(body)
    except ProtobufError as error:
        raise undecodable(target, str(error), body) from None


def check_kind(target: Target, body: Object) -> None:
    """Raise StatusError if the object's kind or version is not that of the request's path."""
    kind, api_version = body.get("kind"), body.get("apiVersion")
    wanted = target.kind.name
    if kind not in (None, "", wanted):
        version = str(api_version).rpartition("/")[2]
        package = target.kind.group.partition(".")[0] or "core"
        text = (
            f'{kind} in version "{version}" cannot be handled as a {wanted}: converting '
            f"({version}.{kind}) to ({package}.{wanted}): unknown conversion"
        )
        raise StatusError(400, text)
    if api_version not in (None, "", target.api_version):
        raise StatusError(
            400,
            f"the API version in the data ({api_version}) does not match the expected API version "
            f"({target.api_version})",
        )


def typed(target: Target, value: Object, *, strict: bool) -> Object:
    """Check the types of an object's fields, and return the object.

    In objects of resource.k8s.io, all fields are checked. Unknown fields are dropped; if ``strict``
    is True, they are an error. In other objects, only the fields that this project reads are
    checked, and unknown fields are kept.

    Raises StatusError for a value of a wrong type, or for unknown fields that are an error.
    """
    try:
        return _typed(target, value, strict)
    except StructureError as error:
        kind, version = target.kind.name, target.api_version.rpartition("/")[2]
        text = f'{kind} in version "{version}" cannot be handled as a {kind}: {error}'
        raise StatusError(400, text) from None


def typed_patch(target: Target, value: Object, patch: Object | None, *, strict: bool) -> Object:
    """Check the types of the fields of a patched object, and return the object.

    The rules and errors are those of ``typed``. ``value``: the patched object. ``patch``: the
    strategic merge patch; None for any other kind of patch. The error message shows ``patch``, or
    the object if ``patch`` is None.
    """
    try:
        return _typed(target, value, strict)
    except StructureError as error:
        shown = go_json(value) if patch is None else go_printed(patch)
        raise patch_mismatch(shown, str(error)) from None


def _typed(target: Target, value: Object, strict: bool) -> Object:
    kind, api_version = target.kind.name, target.api_version
    if not has_structure(api_version, kind):
        return _checked(value, kind)
    return decoded(value, api_version, kind, strict=strict)


_TEXT, _TEXTS = "string", "map[string]string"
_NUMBER, _SMALL_NUMBER = "int64", "int32"
_AMOUNTS, _CONTAINER = "v1.ResourceList", "v1.Container"
_METADATA: Final = {
    "metadata": "v1.ObjectMeta",
    **dict.fromkeys(
        (f"metadata.{name}" for name in ("name", "generateName", "namespace", "uid")), _TEXT
    ),
    "metadata.resourceVersion": _TEXT,
    "metadata.labels": _TEXTS,
    "metadata.annotations": _TEXTS,
    "metadata.finalizers": "[]string",
    "metadata.ownerReferences": "[]v1.OwnerReference",
}
_FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "Pod": {
        "spec": "v1.PodSpec",
        "spec.nodeName": _TEXT,
        "spec.terminationGracePeriodSeconds": _NUMBER,
        "spec.priority": _SMALL_NUMBER,
        "spec.containers": "[]v1.Container",
        "spec.initContainers": "[]v1.Container",
        "spec.tolerations": "[]v1.Toleration",
        "spec.resourceClaims": "[]v1.PodResourceClaim",
        "status": "v1.PodStatus",
        "status.phase": _TEXT,
        "status.conditions": "[]v1.PodCondition",
        "status.containerStatuses": "[]v1.ContainerStatus",
        "status.initContainerStatuses": "[]v1.ContainerStatus",
    },
    "Node": {
        "spec": "v1.NodeSpec",
        "spec.taints": "[]v1.Taint",
        "status": "v1.NodeStatus",
        "status.capacity": _AMOUNTS,
        "status.allocatable": _AMOUNTS,
        "status.conditions": "[]v1.NodeCondition",
        "status.addresses": "[]v1.NodeAddress",
    },
    "Lease": {"spec": "v1.LeaseSpec"},
}
"""Go types of the fields to check, by kind and path. ``_METADATA`` has the fields of all kinds. A
field comes after the object that contains it."""


def _checked(value: Object, kind: str) -> Object:
    """Check the types of the fields that this project reads. Return the object, with empty metadata
    if it had none. Raises StructureError for a wrong type."""
    if not isinstance(value, dict):
        raise StructureError(mismatch(value, kind, f"v1.{kind}"))
    value = {**value, "metadata": {} if value.get("metadata") is None else value["metadata"]}
    types = {**_METADATA, **_FIELDS.get(kind, {})}
    for path, type_ in types.items():
        *parents, name = path.split(".")
        owner: Any = value
        for each in parents:
            owner = owner.get(each) or {}
        if owner.get(name) is not None:
            within = types[".".join(parents)].removeprefix("v1.") if parents else kind
            _check(owner[name], type_, f"{within}.{path}")
    return value


def _check(value: Any, type_: str, field: str) -> None:
    if not isinstance(value, _python_type(type_)) or isinstance(value, bool):
        raise StructureError(mismatch(value, field, type_))
    if type_ == _TEXTS:
        for each in value.values():
            _check(each, _TEXT, field)
    elif type_.startswith("[]"):
        for each in value:
            _check(each, type_.removeprefix("[]"), field)
    elif type_ == _AMOUNTS:
        for each in value.values():
            quantity(each)
    elif type_ == _CONTAINER and value.get("resources") is not None:
        path, resources = f"{field.partition('.')[2]}.resources", value["resources"]
        _check(resources, "v1.ResourceRequirements", f"Container.{path}")
        for name in ("requests", "limits"):
            if resources.get(name) is not None:
                _check(resources[name], _AMOUNTS, f"ResourceRequirements.{path}.{name}")


def _python_type(type_: str) -> type[Any]:
    if type_.startswith("[]"):
        return list
    return {_TEXT: str, _NUMBER: int, _SMALL_NUMBER: int}.get(type_, dict)

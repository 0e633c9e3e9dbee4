"""Decode request bodies (JSON, YAML, protobuf) as a real API server does."""

from __future__ import annotations

import json
from typing import Any, Final

from devicemanager.apiserver.errors import StatusError, undecodable
from devicemanager.apiserver.kinds import Target
from devicemanager.apiserver.protobuf import CONTENT_TYPE, ProtobufError, decode
from devicemanager.apiserver.store import Object
from devicemanager.apiserver.structure import StructureError, decoded, has_structure

__all__ = ["check_kind", "parsed", "typed"]

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
    """Return the object in a body, or the steps of a JSON patch; an empty object without a body.

    ``content``: the header ``Content-Type``. Raises StatusError for a body that is not in this
    encoding, and for an unknown encoding.
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
    import yaml

    try:
        found = yaml.safe_load(body)
    except yaml.YAMLError as error:
        raise undecodable(target, f"yaml: {' '.join(str(error).split())}", body) from None
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
    """Return an object without unknown fields. If ``strict`` is True, they are an error.

    Raises StatusError for a value of a wrong type. Outside of resource.k8s.io, only the metadata is
    checked.
    """
    kind, api_version = target.kind.name, target.api_version
    try:
        if not has_structure(api_version, kind):
            return _with_metadata(value, kind)
        return decoded(value, api_version, kind, strict=strict)
    except StructureError as error:
        version = api_version.rpartition("/")[2]
        text = f'{kind} in version "{version}" cannot be handled as a {kind}: {error}'
        raise StatusError(400, text) from None


_TEXT, _TEXTS, _OBJECT = "string", "map[string]string", "v1.ObjectMeta"
_METADATA: Final = {
    **dict.fromkeys(("name", "generateName", "namespace", "uid", "resourceVersion"), _TEXT),
    **dict.fromkeys(("labels", "annotations"), _TEXTS),
    "finalizers": "[]string",
    "ownerReferences": "[]v1.OwnerReference",
}
"""Go type of each metadata field that the server reads."""


def _with_metadata(value: Object, kind: str) -> Object:
    """Return an object with valid metadata. Raises StructureError."""
    if not isinstance(value, dict):
        raise StructureError(_mismatch(kind, _OBJECT))
    metadata = value.get("metadata")
    if metadata is None:
        return {**value, "metadata": {}}
    if not isinstance(metadata, dict):
        raise StructureError(_mismatch(f"{kind}.metadata", _OBJECT))
    for name, type_ in _METADATA.items():
        if metadata.get(name) is not None and not _is_of(type_, metadata[name]):
            raise StructureError(_mismatch(f"{kind}.metadata.{name}", type_))
    return value


def _is_of(type_: str, value: Any) -> bool:
    if type_ == _TEXT:
        return isinstance(value, str)
    if type_ == _TEXTS:
        return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    inner = str if type_ == "[]string" else dict
    return isinstance(value, list) and all(isinstance(each, inner) for each in value)


def _mismatch(field: str, type_: str) -> str:
    return f"json: cannot unmarshal another type into Go struct field {field} of type {type_}"

"""Checks of the form of the API server's responses, before they are used.

A proxy in front of the server, or a server with a bug, can send any response. A malformed object
must not affect other objects: ``defect`` describes what is wrong, and callers skip the object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from devicemanager.client.protocol import JsonObject

__all__ = ["decoded", "defect", "list_items", "list_metadata", "version_number"]

# Kubernetes parses versions as uint64, whose largest value has 20 digits.
_MAX_DIGITS = 20
# Fields that are needed to identify and order objects.
_REQUIRED = ("name", "uid", "resourceVersion")
_STRING_MAPS = ("labels", "annotations")
_OBJECT_LISTS = ("conditions", "initContainerStatuses", "containerStatuses")


def decoded(data: bytes) -> JsonObject:
    """Decode a JSON object; raise ValueError for any other content."""
    try:
        found = json.loads(data.decode())
    # A hostile or broken proxy can send deeply nested JSON.
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def list_metadata(page: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of a list object; empty for a list object without metadata.

    Raises ValueError if the metadata is not a mapping.
    """
    return _mapping(page.get("metadata"), "metadata")


def list_items(page: Mapping[str, Any]) -> list[Any]:
    """Return the items of a list object, without checking them.

    Raises ValueError if ``items`` is not a list.
    """
    # A server in Go can encode an empty list as null.
    found = page.get("items") or []
    if not isinstance(found, list):
        raise ValueError("'items' is not a list")
    return found


def defect(object_: Any) -> str:
    """Return what is malformed in a Node or Pod; an empty text if nothing is malformed.

    Only fields that ``devicemanager.cluster`` reads are checked.
    """
    try:
        _check(object_)
    except ValueError as error:
        return str(error)
    return ""


def _check(object_: Any) -> None:
    whole = _mapping(object_, "the value")
    metadata = _mapping(whole.get("metadata"), "metadata")
    for name in _REQUIRED:
        if not isinstance(found := metadata.get(name), str) or not found:
            raise ValueError(f"metadata.{name} is not a string")
    # Optional fields can be missing, null or empty, depending on the server.
    for name in _STRING_MAPS:
        if found := metadata.get(name):
            values = _mapping(found, f"metadata.{name}").values()
            if not all(isinstance(each, str) for each in values):
                raise ValueError(f"metadata.{name} has a value that is not a string")
    _check_objects(metadata.get("ownerReferences"), "metadata.ownerReferences")
    if not isinstance(metadata.get("namespace", ""), str):
        raise ValueError("metadata.namespace is not a string")
    if not isinstance(_mapping(whole.get("spec") or None, "spec").get("nodeName", ""), str):
        raise ValueError("spec.nodeName is not a string")
    if found := whole.get("status"):
        status = _mapping(found, "status")
        for name in _OBJECT_LISTS:
            _check_objects(status.get(name), f"status.{name}")


def _check_objects(found: Any, where: str) -> None:
    if found and not (isinstance(found, list) and _are_objects(found)):
        raise ValueError(f"{where} is not a list of objects")


def _are_objects(found: Iterable[Any]) -> bool:
    return all(isinstance(each, dict) for each in found)


def _mapping(found: Any, where: str) -> Mapping[str, Any]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{where} is not an object")
    return found


def version_number(metadata: Mapping[str, Any]) -> int:
    """Return ``resourceVersion`` as a number, to compare two versions of an object.

    Returns 0 if it is not a number. The Kubernetes API defines the version as opaque, but every API
    server on etcd uses a counter. A LIST can be merged with a concurrent WATCH only by comparing
    versions.
    """
    text = metadata["resourceVersion"]
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else 0

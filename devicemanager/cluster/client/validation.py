"""What the API server says, looked at before anybody relies on its form: a proxy answers as well,
and so does a server with a defect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from devicemanager.cluster.client.protocol import JsonObject

__all__ = ["decoded", "defect", "list_items", "list_metadata", "version_number"]

_LONGEST_NUMBER = 20
_NAMES = ("name", "uid", "resourceVersion")
_TEXTS = ("labels", "annotations")
_LISTS = ("conditions", "initContainerStatuses", "containerStatuses")


def decoded(data: bytes) -> JsonObject:
    """A JSON object. Raises ValueError for anything else."""
    try:
        found = json.loads(data.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


def list_metadata(page: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a list; empty for none. Raises ValueError."""
    return _mapping(page.get("metadata"), "metadata")


def list_items(page: Mapping[str, Any]) -> list[Any]:
    """Of a list, each of which may be anything. Raises ValueError."""
    found = page.get("items") or []
    if not isinstance(found, list):
        raise ValueError("items is no list")
    return found


def defect(object_: Any) -> str:
    """What is wrong with the form of a Node or Pod, in so far as we read it; empty for nothing."""
    try:
        _check(object_)
    except ValueError as error:
        return str(error)
    return ""


def _check(object_: Any) -> None:
    whole = _mapping(object_, "it")
    metadata = _mapping(whole.get("metadata"), "metadata")
    for name in _NAMES:
        if not isinstance(found := metadata.get(name), str) or not found:
            raise ValueError(f"metadata.{name} is no text")
    for name in _TEXTS:
        if said := metadata.get(name):
            values = _mapping(said, f"metadata.{name}").values()
            if not all(isinstance(each, str) for each in values):
                raise ValueError(f"metadata.{name} has a value that is no text")
    _check_objects(metadata.get("ownerReferences"), "metadata.ownerReferences")
    if not isinstance(metadata.get("namespace", ""), str):
        raise ValueError("metadata.namespace is no text")
    if not isinstance(_mapping(whole.get("spec") or None, "spec").get("nodeName", ""), str):
        raise ValueError("spec.nodeName is no text")
    if status := whole.get("status"):
        known = _mapping(status, "status")
        for name in _LISTS:
            _check_objects(known.get(name), f"status.{name}")


def _check_objects(found: Any, where: str) -> None:
    if found and not (isinstance(found, list) and _are_objects(found)):
        raise ValueError(f"{where} is no list of objects")


def _are_objects(found: Iterable[Any]) -> bool:
    return all(isinstance(each, dict) for each in found)


def _mapping(found: Any, where: str) -> Mapping[str, Any]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{where} is no object")
    return found


def version_number(metadata: Mapping[str, Any]) -> int:
    """``resourceVersion`` as a number, by which a newer object is told; 0 if it is none."""
    text = metadata["resourceVersion"]
    return int(text) if text.isdecimal() and len(text) <= _LONGEST_NUMBER else 0

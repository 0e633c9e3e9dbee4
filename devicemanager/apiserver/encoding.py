"""Encode stored objects as JSON, in the ``apiVersion`` that a request uses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from devicemanager.apiserver.conversion import from_stored
from devicemanager.apiserver.kinds import Target
from devicemanager.apiserver.store import Object, Stored

__all__ = ["list_text", "object_text"]


def object_text(named: Target, stored: Stored) -> bytes:
    """Return an object as JSON, in the ``apiVersion`` that the request uses."""
    if named.api_version == named.kind.api_version:
        return stored.text
    return json.dumps(from_stored(named.kind, named.api_version, stored.value)).encode()


def _item(named: Target, stored: Stored) -> bytes:
    """Return an item of a list as JSON, in the version of a request."""
    if named.api_version == named.kind.api_version:
        return stored.item
    found = from_stored(named.kind, named.api_version, stored.value)
    return json.dumps({key: found[key] for key in found if key not in _OF_LIST}).encode()


_OF_LIST: Final = ("apiVersion", "kind")
"""Fields that list items lack: only the list has them."""


def list_text(named: Target, metadata: Object, found: Sequence[Stored]) -> bytes:
    kind = named.kind
    head = {"kind": f"{kind.name}List", "apiVersion": named.api_version, "metadata": metadata}
    # Stored objects are already encoded, which matters for lists of thousands.
    items = b",".join(_item(named, each) for each in found)
    return json.dumps(head).encode()[:-1] + b',"items":[' + items + b"]}"

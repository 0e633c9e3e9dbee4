"""YAML and JSON texts with any number of objects."""

from __future__ import annotations

import json
from collections.abc import Iterable

from devicemanager.claims.errors import InvalidObject
from devicemanager.claims.v1alpha1.objects import Object
from devicemanager.claims.v1alpha1.reading import read_object
from devicemanager.claims.v1alpha1.validate import MAX_DEVICES
from devicemanager.claims.v1alpha1.writing import write_object
from devicemanager.objects.manifests.documents import load_documents
from devicemanager.objects.manifests.errors import ManifestError

MAX_SIZE = 8 * 1024 * 1024
"""Characters of one text: a pool of many thousand devices is some megabytes."""
_MAX_NODES = 1_000_000
_TOO_LARGE = f"larger than {MAX_SIZE} characters"


def read_text(text: str, where: str = "") -> tuple[Object, ...]:
    """All objects of a text. A document that is a ``List`` stands for its items. No list may
    have more items than a pool may have devices.

    Raises InvalidObject with a line for everything that is wrong, each beginning with
    ``where``, which names the text; then nothing of it is to be used.
    """
    prefix = f"{where}: " if where else ""
    try:
        documents = load_documents(text, MAX_SIZE, _MAX_NODES, _TOO_LARGE, MAX_DEVICES)
    except ManifestError as error:
        raise InvalidObject((f"{prefix}{error}",)) from None
    found, lines = [], list[str]()
    for document in _items(documents):
        try:
            found.append(read_object(document))
        except InvalidObject as error:
            lines += [prefix + line for line in error.lines]
    if lines:
        raise InvalidObject(tuple(lines))
    return tuple(found)


def _items(documents: Iterable[object]) -> Iterable[object]:
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "List":
            items = document.get("items")
            yield from items if isinstance(items, list) else [items]
        else:
            yield document


def to_json(found: Object) -> str:
    """One object, indented."""
    return json.dumps(write_object(found), indent=2, ensure_ascii=False)


def to_yaml(objects: Iterable[Object]) -> str:
    """Objects as the documents of one text."""
    import yaml

    documents = [write_object(each) for each in objects]
    return str(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True))

"""Objects of the API from whatever a program has in hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from devicemanager.claims.errors import InvalidObject
from devicemanager.claims.files import read_file
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.claims.v1alpha1.reading import read_object
from devicemanager.claims.v1alpha1.texts import read_text
from devicemanager.objects.manifests.errors import described

Source = Mapping[str, Any] | str | Path | api.Object
"""A decoded document, YAML or JSON text with any number of them, a file, or an object."""

_SUFFIXES = (".yaml", ".yml", ".json")


def read_source(source: Source) -> tuple[api.Object, ...]:
    """All objects of a source. Raises InvalidObject with a line for everything wrong."""
    if isinstance(source, api.Object):
        return (source,)
    if isinstance(source, Mapping):
        return (read_object(source),)
    if isinstance(source, Path):
        return read_file(source).objects
    if isinstance(source, str):
        if "\n" in source or source.lstrip().startswith("{"):
            return read_text(source)
        if source.endswith(_SUFFIXES) or ":" not in source:
            return read_file(Path(source)).objects
        return read_text(source)
    expected = "a dict, YAML text, a path or an object of devicemanager.claims"
    raise InvalidObject((f"give {expected}, not {described(source)}",))

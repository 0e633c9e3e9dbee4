"""Rules for ``metadata`` (``ValidateObjectMeta`` and ``ValidateObjectMetaUpdate``, v1.37).

Each check yields one ``FieldError`` per broken rule; ``at`` is the path of the checked field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from devicemanager.objects.dra import formats
from devicemanager.objects.dra.errors import Errors, forbidden, invalid, required, too_long

__all__ = ["metadata", "template_metadata", "updated_metadata"]

_Object = Mapping[str, Any]
_MAX_ANNOTATIONS: Final = 256 * 1024
_IMMUTABLE: Final = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def metadata(value: _Object) -> Errors:
    """Check the metadata of a new object."""
    if name := value.get("name"):
        yield from formats.long_name("metadata.name", name)
    else:
        yield required("metadata.name", "name or generateName is required")
    yield from template_metadata("metadata", value)


def template_metadata(at: str, value: _Object) -> Errors:
    """Check the metadata in a template by all rules except the rules for the name."""
    yield from _labels(f"{at}.labels", value.get("labels") or {})
    yield from _annotations(f"{at}.annotations", value.get("annotations") or {})
    yield from _owners(f"{at}.ownerReferences", value.get("ownerReferences") or [])
    yield from _finalizers(f"{at}.finalizers", value.get("finalizers") or [])


def updated_metadata(new: _Object, old: _Object) -> Errors:
    """Check the metadata of an object in an update. ``old``: the metadata before the update."""
    if old.get("deletionTimestamp"):
        before = old.get("finalizers") or ()
        # ``ValidateNoNewFinalizers`` prints a sorted list in Go syntax (``%#v``).
        added = sorted({each for each in new.get("finalizers") or () if each not in before})
        if added:
            shown = ", ".join(f'"{each}"' for each in added)
            rule = "no new finalizers can be added if the object is being deleted"
            text = f"{rule}, found new finalizers []string{{{shown}}}"
            yield forbidden("metadata.finalizers", text)
    for name in _IMMUTABLE:
        if new.get(name) != old.get(name):
            yield invalid(f"metadata.{name}", new.get(name), "field is immutable")
    yield from _labels("metadata.labels", new.get("labels") or {})
    yield from _annotations("metadata.annotations", new.get("annotations") or {})
    yield from _owners("metadata.ownerReferences", new.get("ownerReferences") or [])


def _labels(at: str, labels: Mapping[str, str]) -> Errors:
    for key in sorted(labels):
        yield from formats.label_key(at, key)
        yield from formats.label_value(at, labels[key])


def _annotations(at: str, annotations: Mapping[str, str]) -> Errors:
    for key in sorted(annotations):
        # ``ValidateAnnotations`` checks the lowercase key, because case does not matter here.
        for error in formats.label_key(at, key.lower()):
            yield invalid(at, key, error.detail)
    if sum(map(formats.length, (*annotations, *annotations.values()))) > _MAX_ANNOTATIONS:
        yield too_long(at, _MAX_ANNOTATIONS)


def _finalizers(at: str, finalizers: list[str]) -> Errors:
    for each in finalizers:
        yield from formats.label_key(at, each)


def _owners(at: str, owners: list[_Object]) -> Errors:
    controller = ""
    for number, owner in enumerate(owners):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                yield required(f"{at}[{number}].{name}", "must not be empty")
        if not owner.get("controller"):
            continue
        name = f"{owner.get('kind', '')}/{owner.get('name', '')}"
        if controller:
            rule = (
                'Only one reference can have Controller set to true. Found "true" in references '
                f"for {controller} and {name}"
            )
            yield invalid(at, owners, rule)
        controller = controller or name

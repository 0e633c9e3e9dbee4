"""Node kinds of ``devicemanager join -f FILE``: how many nodes of each kind, and their properties.

The flags of ``join`` are the defaults of all kinds. Each error message is one line. It names the
file and, if known, the kind and the field.
"""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from devicemanager.cli import join_slices
from devicemanager.cli.files import read_file
from devicemanager.cli.join_values import EFFECTS, label_option
from devicemanager.cli.options import CommandError
from devicemanager.io.safe_read import not_utf8

if TYPE_CHECKING:
    from devicemanager.client.protocol import JsonObject
    from devicemanager.cluster.driver_layouts import DriverLayout
    from devicemanager.cluster.node_specs import NodeSpecs
    from devicemanager.cluster.options import NodeOptions
    from devicemanager.core.quantity import Quantity

__all__ = ["kinds_of"]

_MAX_FILE = 16 << 20
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_EXAMPLE = "expected YAML such as 'kinds: [{name: gpu, count: 10}]'"
_FIELDS = ("name", "count", "labels", "taints", "capacity", "devices", "drivers")


@attrs.frozen
class _Kind:
    """A node kind in the file, and the text with which errors about it begin."""

    at: str
    value: Mapping[str, Any]

    def field(self, name: str, form: type | tuple[type, ...], default: Any, expected: str) -> Any:
        """Return a field, or the default if it is missing. Raises CommandError."""
        found = self.value.get(name)
        if found is None:
            return default
        # A bool is also an int.
        if not isinstance(found, form) or isinstance(found, bool):
            raise self.error(f"invalid {name} {_shown(found)}: expected {expected}")
        return found

    def error(self, text: str) -> CommandError:
        return CommandError(f"{self.at}: {text}")


def kinds_of(
    args: argparse.Namespace,
    base: NodeOptions,
    make: Callable[[Mapping[str, Any]], NodeSpecs],
) -> tuple[NodeSpecs, ...]:
    """Return the specifications of the node kinds in the file of ``-f``.

    ``base`` has the node options from the flags; a kind can change them. ``make`` returns the
    specification of one kind. Its argument is a mapping with the keys ``kind`` (the name),
    ``count``, ``simulate`` (the devices by resource), ``options`` and ``numbering``. The numbering
    gives each node a number, which determines its address. Raises CommandError and OSError.
    """
    from devicemanager.cluster.node_specs import Numbering

    kinds = tuple(_kinds(args.file))
    counts = [each.field("count", int, 1, "a number of nodes") for each in kinds]
    # The kinds take numbers in turn. So the largest kind determines into how many parts the address
    # range is divided.
    parts = len(kinds) * max(1, *counts)
    return tuple(
        make(
            {
                "count": count,
                "simulate": _devices(kind),
                "kind": kind.value["name"],
                "options": _options(kind, base),
                "numbering": Numbering(position, len(kinds), parts),
            }
        )
        for position, (kind, count) in enumerate(zip(kinds, counts, strict=True))
    )


def _kinds(file: str) -> Iterator[_Kind]:
    from devicemanager.objects.manifests.documents import load_documents
    from devicemanager.objects.manifests.errors import ManifestError

    try:
        documents = load_documents(read_file(file, _MAX_FILE).decode())
    except UnicodeDecodeError as error:
        raise CommandError(f"{file}: {not_utf8(error)}") from None
    except ManifestError as error:
        raise CommandError(f"{file}: {error}") from None
    listed = [each for value in documents for each in _listed(file, value)]
    if not listed:
        raise CommandError(f"{file}: the list of kinds is empty: {_EXAMPLE}")
    seen = set[str]()
    for number, each in enumerate(listed):
        kind = _checked(f"{file}: kinds[{number}]", each)
        # The names of nodes contain the name of their kind, so equal kinds would have the same
        # nodes.
        if (name := kind.value["name"]) in seen:
            raise kind.error(f"duplicate name {name}")
        seen.add(name)
        yield attrs.evolve(kind, at=f"{file}: kind {name}")


def _listed(file: str, value: object) -> list[Any]:
    # Any other key is an error, because a misspelled one would be ignored silently.
    kinds = value.get("kinds") if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(kinds, list):
        raise CommandError(f"{file}: {_EXAMPLE}")
    return kinds


def _checked(at: str, value: object) -> _Kind:
    if not isinstance(value, dict):
        raise CommandError(f"{at}: expected a mapping, not {_shown(value)}")
    kind = _Kind(at, value)
    for field in value:
        if field not in _FIELDS:
            raise kind.error(f"unknown field {_shown(field)}: use {', '.join(_FIELDS)}")
    name = value.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise kind.error(f"invalid name {_shown(name)}: use a to z, 0 to 9 and -")
    return kind


def _options(kind: _Kind, base: NodeOptions) -> NodeOptions:
    return attrs.evolve(
        base,
        labels={**base.labels, **_labels(kind)},
        taints=(*base.taints, *_taints(kind)),
        amounts={**base.amounts, **_capacity(kind)},
        drivers=_drivers(kind) or base.drivers,
    )


def _labels(kind: _Kind) -> dict[str, str]:
    labels = kind.field("labels", dict, {}, "labels such as {zone: a}")
    try:
        # YAML reads values such as 1 and true as other types, but labels are texts.
        return dict(label_option(f"{key}={value}") for key, value in labels.items())
    except argparse.ArgumentTypeError as error:
        raise kind.error(str(error)) from None


def _taints(kind: _Kind) -> Iterator[dict[str, str]]:
    expected = f"[{{key: KEY, value: VALUE, effect: {'|'.join(EFFECTS)}}}]"
    for taint in kind.field("taints", list, [], expected):
        if (
            not isinstance(taint, dict)
            or not {"key", "effect"} <= taint.keys() <= {"key", "value", "effect"}
            or taint["effect"] not in EFFECTS
        ):
            raise kind.error(f"invalid taint {_shown(taint)}: expected {expected}")
        # As for labels, YAML can have read a value such as 1 or true as another type.
        yield {name: str(value) for name, value in taint.items()}


def _capacity(kind: _Kind) -> dict[str, Quantity]:
    expected = "quantities such as {cpu: 8, memory: 32Gi, pods: 20}"
    capacity = kind.field("capacity", dict, {}, expected)
    try:
        return {str(name): _quantity(name, text) for name, text in capacity.items()}
    except ValueError as error:
        raise kind.error(str(error)) from None


def _quantity(name: object, text: object) -> Quantity:
    """Parse a quantity of at least 0. Raises ValueError."""
    from devicemanager.core.quantity import Quantity

    with contextlib.suppress(ValueError):
        found = Quantity.parse(str(text))
        if found.nanos >= 0:
            return found
    raise ValueError(f"invalid capacity {name}: {_shown(text)}: use a form such as 2, 500m or 8Gi")


def _devices(kind: _Kind) -> dict[str, str]:
    from devicemanager.cli.settings_options import device_option, device_resource

    devices = kind.field("devices", dict, {}, "devices such as {vendor.com/gpu: 8}")
    for resource, text in devices.items():
        try:
            device_resource(str(resource))
            device_option(f"{resource}={text}")
        except argparse.ArgumentTypeError as error:
            raise kind.error(str(error)) from None
    return {str(resource): str(text) for resource, text in devices.items()}


# -- drivers -------------------------------------------------------------------------------


def _drivers(kind: _Kind) -> tuple[DriverLayout, ...]:
    expected = "[{name: gpu.example.com, devices: 8}] or [{slices: FILE}]"
    layouts: list[DriverLayout] = []
    for each in kind.field("drivers", list, [], expected):
        if not isinstance(each, dict):
            raise kind.error(f"invalid driver {_shown(each)}: expected {expected}")
        if each.keys() == {"slices"}:
            # A relative path is relative to the file of the kinds.
            file = Path(kind.at.rpartition(": ")[0]).parent / str(each["slices"])
            layouts += join_slices.recorded_layouts(str(file))
        elif {"name", "devices"} <= each.keys() <= {"name", "devices", "attributes", "capacity"}:
            layouts.append(_driver(kind, each))
        else:
            raise kind.error(f"invalid driver {_shown(each)}: expected {expected}")
    names = [layout.driver for layout in layouts]
    for name in names:
        if names.count(name) > 1:
            raise kind.error(f"driver {name} is given twice: remove one")
    return tuple(layouts)


def _driver(kind: _Kind, given: Mapping[str, Any]) -> DriverLayout:
    from devicemanager.cluster.driver_layouts import simulated_driver

    try:
        name, numa = join_slices.driver_option(f"{given['name']}={given['devices']}")
        attributes, capacity = (dict(given.get(each) or {}) for each in ("attributes", "capacity"))
        values = {str(key): _attribute(value) for key, value in attributes.items()}
        amounts = {
            str(key): {"value": str(_quantity(key, value))} for key, value in capacity.items()
        }
    except (argparse.ArgumentTypeError, ValueError, TypeError) as error:
        raise kind.error(f"driver {_shown(given.get('name'))}: {error}") from None
    return simulated_driver(name, numa, attributes=values, capacity=amounts)


def _attribute(value: object) -> JsonObject:
    """Return the value of an attribute as in the API. Raises ValueError."""
    if isinstance(value, dict) and value.keys() == {"version"}:
        return {"version": str(value["version"])}
    # A bool is also an int.
    for kind, name in ((bool, "bool"), (int, "int"), (str, "string")):
        if isinstance(value, kind):
            return {name: value}
    raise ValueError(
        f"invalid attribute {_shown(value)}: use a string, a whole number, a bool or "
        "{version: VERSION}"
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

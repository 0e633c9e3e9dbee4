"""Rules for ResourceSlices (``ValidateResourceSlice``, v1.37).

Each check yields one ``FieldError`` per broken rule; ``at`` is the path of the checked field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from devicemanager.objects.dra import formats, nodes
from devicemanager.objects.dra.capacity import device_capacity
from devicemanager.objects.dra.errors import (
    Errors,
    declared,
    duplicate,
    invalid,
    required,
    too_long,
)
from devicemanager.objects.dra.lists import bounded, each_entry, items, unique

__all__ = ["MAX_KEY", "binding", "resource_slice"]

_Object = Mapping[str, Any]

_MAX_DEVICES: Final = 128
_MAX_SPECIAL_DEVICES: Final = 64
"""Maximum number of devices in a slice if any of them has taints, counters or lists of values."""
_MAX_ENTRIES: Final = 32
_MAX_VALUES: Final = 48
_MAX_VALUE: Final = 64
_MAX_COUNTER_SETS: Final = 8
_MAX_COUNTERS: Final = 32
_MAX_CONSUMED_SETS: Final = 2
_MAX_TAINTS: Final = 16
_MAX_CONDITIONS: Final = 4
MAX_KEY: Final = 63 + 1 + 32
"""Maximum length of an attribute name in characters: domain, ``/`` and name."""
_IMMUTABLE: Final = "field is immutable"
_TRUE: Final = "must be either unset or set to true"


def resource_slice(spec: _Object, old: _Object | None) -> Errors:
    """Check the spec of a slice. ``old``: the spec before an update; None for a new slice."""
    yield from formats.driver_name("spec.driver", spec.get("driver", ""))
    yield from _pool(spec.get("pool") or {})
    if old is not None:
        yield from _immutable(spec, old)
    yield from _selection(spec)
    yield from _either(spec)
    # Compared by name, because an update can change the order of the devices.
    before = {each.get("name"): each for each in (old or {}).get("devices") or ()}
    is_per_device = bool(spec.get("perDeviceNodeSelection"))

    def device(at: str, found: _Object) -> Errors:
        return _device(at, found, before.get(found.get("name")), is_per_device)

    most = _MAX_SPECIAL_DEVICES if _is_special(spec) else _MAX_DEVICES
    yield from unique("spec.devices", spec.get("devices"), most, device, _name, is_declared=False)
    sets = spec.get("sharedCounters")
    yield from unique("spec.sharedCounters", sets, _MAX_COUNTER_SETS, _counter_set, _name)


def _name(value: _Object) -> str:
    return str(value.get("name", ""))


def _pool(pool: _Object) -> Errors:
    yield from formats.pool_name("spec.pool.name", pool.get("name", ""))
    if (count := pool.get("resourceSliceCount", 0)) <= 0:
        yield invalid("spec.pool.resourceSliceCount", count, "must be greater than zero")
    if (generation := pool.get("generation", 0)) < 0:
        rule = "must be greater than or equal to zero"
        yield invalid("spec.pool.generation", generation, rule)


def _immutable(spec: _Object, old: _Object) -> Errors:
    pools = [(each.get("pool") or {}).get("name", "") for each in (spec, old)]
    drivers = [each.get("driver", "") for each in (spec, old)]
    nodes_ = [each.get("nodeName") for each in (spec, old)]
    rows = (("pool.name", pools), ("driver", drivers), ("nodeName", nodes_))
    for name, (new, before) in rows:
        if new != before:
            yield invalid(f"spec.{name}", new, _IMMUTABLE)


# -- nodes -------------------------------------------------------------------------------


def _selection(spec: _Object) -> Errors:
    """Check that exactly one field selects nodes."""
    yield from _node_name(spec, "spec", "must be either unset or set to a non-empty string")
    if (selector := spec.get("nodeSelector")) is not None:
        yield from nodes.node_selector("spec.nodeSelector", selector)
        terms = selector.get("nodeSelectorTerms")
        # A single term makes it simpler to merge the selectors of several slices.
        if len(terms or ()) != 1:
            rule = "must have exactly one node selector term"
            shown = [_internal(each) for each in terms or ()]
            yield invalid("spec.nodeSelector.nodeSelectorTerms", shown, rule)
    for name in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(name) is False:
            yield invalid(f"spec.{name}", False, _TRUE)
    names = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
    rule = f"exactly one of {', '.join(f'`{each}`' for each in names)} is required"
    yield from _one("spec", spec, names, rule, f"{rule}, but multiple fields are set")


def _internal(term: _Object) -> dict[str, Any]:
    """Return a term in the form of upstream's internal type, as the error message shows it."""
    return {
        f"{name[0].upper()}{name[1:]}": [
            {key.capitalize(): each.get(key) for key in ("key", "operator", "values")}
            for each in term[name]
        ]
        if name in term
        else None
        for name in ("matchExpressions", "matchFields")
    }


def _node_name(value: _Object, at: str, rule: str) -> Errors:
    name = value.get("nodeName")
    if name:
        yield from formats.node_name(f"{at}.nodeName", name)
    elif name is not None:
        yield invalid(f"{at}.nodeName", name, rule)


def _one(at: str, value: _Object, names: tuple[str, ...], none: str, several: str) -> Errors:
    # A selector counts if it exists. A name counts only if it is not empty, a boolean if it is
    # true.
    found = [
        each
        for each in names
        if (value.get(each) if each != "nodeSelector" else value.get(each) is not None)
    ]
    if not found:
        yield required(at, none)
    elif len(found) > 1:
        yield invalid(at, f"{{{', '.join(f'`{each}`' for each in found)}}}", several)


def _either(spec: _Object) -> Errors:
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")


def _is_special(spec: _Object) -> bool:
    return any(
        each.get("taints")
        or each.get("consumesCounters")
        or any(
            any(True for _ in _lists(value)) for value in (each.get("attributes") or {}).values()
        )
        for each in spec.get("devices") or ()
    )


# -- devices -----------------------------------------------------------------------------


def _device(at: str, device: _Object, old: _Object | None, is_per_device: bool) -> Errors:
    yield from formats.short_name(f"{at}.name", device.get("name", ""))
    yield from _sizes(at, device)
    attributes = device.get("attributes")
    yield from each_entry(
        f"{at}.attributes", attributes, MAX_KEY, formats.qualified_name, _attribute
    )
    # Capacities and taints that have not changed were checked with the stored slice.
    capacity, before = device.get("capacity"), old or {}
    if old is None or before.get("capacity") != capacity:
        check = device_capacity(is_shared=bool(device.get("allowMultipleAllocations")))
        yield from each_entry(f"{at}.capacity", capacity, MAX_KEY, formats.qualified_name, check)
    taints = device.get("taints")
    if old is None or before.get("taints") != taints:
        yield from bounded(f"{at}.taints", taints, _MAX_TAINTS, nodes.taint, is_declared=False)
    yield from unique(
        f"{at}.consumesCounters",
        device.get("consumesCounters"),
        _MAX_CONSUMED_SETS,
        _consumption,
        lambda each: each.get("counterSet", ""),
    )
    yield from _device_nodes(at, device, is_per_device)
    yield from binding(at, device)


def _sizes(at: str, device: _Object) -> Errors:
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if (entries := len(attributes) + len(capacity)) > _MAX_ENTRIES:
        rule = f"the total number of attributes and capacities must not exceed {_MAX_ENTRIES}"
        yield invalid(at, entries, rule)
    # An attribute with a single value counts as 1. So does an empty list, which ``_attribute``
    # rejects.
    values = sum(sum(len(each) for each in _lists(value)) or 1 for value in attributes.values())
    if values > _MAX_VALUES:
        rule = f"the total number of attribute values must not exceed {_MAX_VALUES}"
        yield invalid(at, values, rule)


def _device_nodes(at: str, device: _Object, is_per_device: bool) -> Errors:
    names = ("nodeName", "nodeSelector", "allNodes")
    if not is_per_device:
        if any(device.get(each) is not None for each in names):
            rule = (
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if "
                "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            )
            yield invalid(at, None, rule)
        return
    yield from _node_name(device, at, "must not be empty")
    if (selector := device.get("nodeSelector")) is not None:
        yield from nodes.node_selector(f"{at}.nodeSelector", selector)
    if device.get("allNodes") is False:
        yield invalid(f"{at}.allNodes", False, _TRUE)
    rule = (
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
        "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
    )
    yield from _one(at, device, names, rule, rule)


# -- attributes --------------------------------------------------------------------------

_LISTS: Final = ("bools", "ints", "strings", "versions")
_UNION: Final = ("int", "bool", "string", "version", "ints", "bools", "strings", "versions")


def _lists(attribute: _Object) -> Iterator[list[Any]]:
    """Yield the value lists of an attribute."""
    return (attribute[each] for each in _LISTS if attribute.get(each) is not None)


def _is_list(attribute: _Object) -> bool:
    return any(True for _ in _lists(attribute))


def _attribute(at: str, attribute: _Object) -> Errors:
    if (text := attribute.get("string")) is not None:
        yield from _text(f"{at}.string", text)
    if (version := attribute.get("version")) is not None:
        yield from formats.semver(f"{at}.version", version)
    for name in _LISTS:
        if attribute.get(name) == []:
            yield invalid(f"{at}.{name}", [], "must not be empty if specified")
    yield from items(f"{at}.strings", attribute.get("strings"), _text)
    yield from items(f"{at}.versions", attribute.get("versions"), formats.semver)
    yield from declared(_union(at, attribute))


def _text(at: str, text: str) -> Errors:
    if formats.length(text) > _MAX_VALUE:
        yield too_long(at, _MAX_VALUE)


def _union(at: str, attribute: _Object) -> Errors:
    found = [each for each in _UNION if attribute.get(each) is not None]
    choices = ", ".join(f"`{each}`" for each in _UNION)
    if not found:
        yield invalid(at, "", f"must specify one of: {choices}")
    elif len(found) > 1:
        shown = f"{{{', '.join(found)}}}"
        yield invalid(at, shown, f"must specify exactly one of: {choices}")


# -- counters ----------------------------------------------------------------------------


def _counter_set(at: str, found: _Object) -> Errors:
    yield from _declared_name(f"{at}.name", found.get("name", ""))
    yield from _counters(f"{at}.counters", found.get("counters"))


def _consumption(at: str, found: _Object) -> Errors:
    yield from _declared_name(f"{at}.counterSet", found.get("counterSet", ""))
    yield from _counters(f"{at}.counters", found.get("counters"))


def _declared_name(at: str, name: str) -> Errors:
    yield from formats.declared_short_name(at, name) if name else declared([required(at)])


def _counters(at: str, counters: _Object | None) -> Errors:
    if not counters:
        yield from declared([required(at)])
        return
    # Unlike the limits of lists, this limit is not a declared rule.
    yield from bounded(at, sorted(counters), _MAX_COUNTERS, _none, is_declared=False)
    # As for lists, the names in a map with too many entries are not checked.
    if len(counters) <= _MAX_COUNTERS:
        for name in sorted(counters):
            yield from formats.declared_short_name(at, name)


def _none(at: str, value: Any) -> Errors:
    return iter(())


# -- binding conditions ------------------------------------------------------------------


def binding(at: str, value: _Object) -> Errors:
    """Check the fields ``bindingConditions`` and ``bindingFailureConditions``.

    ``value``: a device of a slice, or an allocation result of a claim.
    """
    wanted = value.get("bindingConditions") or []
    failures = value.get("bindingFailureConditions") or []
    where, other = f"{at}.bindingConditions", f"{at}.bindingFailureConditions"
    for path, found in ((where, wanted), (other, failures)):
        yield from bounded(path, found, _MAX_CONDITIONS, formats.label_key)
    yield from _repeated(where, wanted, lambda path, each: ())
    yield from _repeated(other, failures, lambda path, each: _overlap(path, each, wanted))
    if failures and not wanted:
        rule = "bindingConditions are required to use bindingFailureConditions"
        yield invalid(where, value.get("bindingConditions"), rule)
    if wanted and not failures:
        rule = "bindingFailureConditions are required to use bindingConditions"
        yield invalid(other, value.get("bindingFailureConditions"), rule)


def _repeated(at: str, values: list[str], more: Callable[[str, str], Any]) -> Errors:
    for number, each in enumerate(values):
        if each in values[:number]:
            yield duplicate(f"{at}[{number}]", each)
        yield from more(f"{at}[{number}]", each)


def _overlap(at: str, condition: str, wanted: list[str]) -> Errors:
    if condition in wanted:
        yield invalid(
            at, condition, "bindingFailureConditions must not overlap with bindingConditions"
        )

"""Parse YAML, JSON and decoded documents into objects of the API.

In:  text with any number of documents, or one decoded document.
Out: valid objects, or InvalidObject with one line for every error in every document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from devicemanager.claims.errors import InvalidObject
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.claims.v1alpha1.fields import UNKNOWN_FIELD, Fields, json_value
from devicemanager.claims.v1alpha1.validate import (
    MAX_DEVICES,
    broken_rules,
    object_line,
    object_name,
)
from devicemanager.objects.manifests.documents import load_documents
from devicemanager.objects.manifests.errors import (
    FieldError,
    ManifestError,
    described,
    unsupported,
)

MAX_SIZE = 8 * 1024 * 1024
"""Maximum length of a text in characters; a pool of 20,000 devices needs some megabytes."""
_MAX_NODES = 1_000_000
_TOO_LARGE = f"larger than {MAX_SIZE} characters"


def read_text(text: str, where: str = "") -> tuple[api.Object, ...]:
    """Return all objects of a text. For a document of kind ``List``, return its items.

    Raises InvalidObject with one line for each error. Each line starts with ``where``, the name of
    the text. No list in the text may have more than ``MAX_DEVICES`` items.
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


def read_object(document: object) -> api.Object:
    """Return the object of a decoded document; an object of another API becomes a ``ConfigObject``.

    Raises InvalidObject with a line for each rule that the document breaks.
    """
    try:
        return _read(document)
    # Aliases in YAML can make an object contain itself.
    except RecursionError:
        raise InvalidObject(("object: nested too deeply, or contains itself",)) from None


def _read(document: object) -> api.Object:
    if not isinstance(document, Mapping):
        text = f"must be a mapping with apiVersion and kind, not {described(document)}"
        raise InvalidObject((text,))
    errors: list[FieldError] = []
    fields = Fields(document, "", errors)
    version, kind = fields.text("apiVersion"), fields.text("kind")
    metadata = _metadata(fields)
    if not metadata.namespace and (version, kind) not in _CLUSTER_SCOPED:
        # As kubectl does with a manifest that names no namespace.
        metadata = attrs.evolve(metadata, namespace="default")
    found: api.Object
    if version == api.API_VERSION:
        reader = _KINDS.get(kind)
        if reader is None:
            # The fields of an unknown kind cannot be checked, so this is its only error.
            errors.append(unsupported("kind", kind, *_KINDS))
            raise InvalidObject((object_line(kind, object_name(metadata), errors[-1]),))
        found = reader(fields, metadata)
        fields.finish()
    else:
        found = api.ConfigObject(version, kind, metadata, json_value(document))
    errors += _independent_of(errors, broken_rules(found))
    if errors:
        name = object_name(metadata)
        raise InvalidObject(tuple([object_line(kind, name, error) for error in errors]))
    return found


def _independent_of(form: Sequence[FieldError], rules: Sequence[FieldError]) -> list[FieldError]:
    """Return the errors in ``rules`` that do not follow from an error in ``form``.

    ``form`` has the errors of unreadable fields. The object lacks these fields. So it can also
    break rules for these fields, for the fields that contain them, and for required fields next to
    them.
    """
    unread, containing, beside = set[str](), set[str](), set[str]()
    for each in form:
        if each.text == UNKNOWN_FIELD:
            continue  # nothing of the object is missing
        above = list(_above(each.field))
        containing.update(above)
        beside.update(above[-1:])
        # The items after an unreadable item have other numbers in the object.
        unread.add(above[-1] if above and each.field.endswith("]") else each.field)

    def is_effect(error: FieldError) -> bool:
        above = list(_above(error.field))
        return (
            error.field in containing
            or not unread.isdisjoint([error.field, *above])
            or (error.text.startswith("Required value") and above[-1:] and above[-1] in beside)
            # Devices charge the resources of their pool.
            or ("].requests[" in error.field and "spec.resources" in containing | unread)
        )

    return [each for each in rules if not is_effect(each)]


def _above(field: str) -> Iterator[str]:
    """Yield the fields that contain a field, outermost first."""
    for place, letter in enumerate(field):
        if letter in ".[":
            yield field[:place]


def check(found: api.Object) -> None:
    """Check an object that a program created. Raises InvalidObject if the object breaks a rule."""
    errors = broken_rules(found)
    if errors:
        name = object_name(found.metadata)
        kind = found.kind if isinstance(found, api.ConfigObject) else type(found).__name__
        raise InvalidObject(tuple([object_line(kind, name, error) for error in errors]))


def _metadata(fields: Fields) -> api.ObjectMeta:
    meta = fields.inner("metadata")
    name, namespace, uid = meta.text("name"), meta.text("namespace"), meta.text("uid")
    return api.ObjectMeta(name, namespace, uid, meta.rest())


def _class(fields: Fields, metadata: api.ObjectMeta) -> api.DeviceClass:
    spec = fields.inner("spec")
    fields.take("status")
    # The JSON tags of these two fields are malformed in the Go type, so Go writes the names
    # Driver and DeviceType.
    driver = spec.as_text(spec.take_any_case("driver"), "driver")
    device_type = spec.as_text(spec.take_any_case("deviceType"), "deviceType")
    found = api.DeviceClass(
        metadata,
        driver,
        device_type,
        spec.text("constraints"),
        spec.boolean("adminAccess"),
        spec.each("configs", _class_config),
    )
    spec.finish()
    return found


def _class_config(fields: Fields) -> api.ConfigReference:
    reference = _claim_config(fields)
    return api.ConfigReference(
        reference.api_version, reference.kind, reference.name, fields.text("namespace")
    )


def _claim_config(fields: Fields) -> api.ConfigReference:
    return api.ConfigReference(fields.text("apiVersion"), fields.text("kind"), fields.text("name"))


def _pool(fields: Fields, metadata: api.ObjectMeta) -> api.DevicePool:
    spec, status = fields.inner("spec"), fields.inner("status")
    found = api.DevicePool(
        metadata,
        spec.text("driver"),
        spec.text("nodeName"),
        spec.each("attributes", read_attribute),
        spec.each("resources", _capacity),
        spec.each("devices", _device),
        status.integer("availableDevices"),
    )
    spec.finish()
    status.finish()
    return found


def _device(fields: Fields) -> api.Device:
    return api.Device(
        fields.text("name"),
        fields.each("attributes", read_attribute),
        fields.quantities("requests"),
        fields.each("resources", _capacity),
    )


def read_attribute(fields: Fields) -> api.Attribute:
    """Return an attribute, read from ``fields``, without checking the rules for attributes."""
    return api.Attribute(
        fields.text("name"),
        fields.optional_text("stringValue"),
        fields.integer("intValue"),
        fields.quantity("quantityValue"),
        fields.optional_text("semVerValue"),
    )


def _capacity(fields: Fields) -> api.ResourceCapacity:
    name, capacity = fields.text("name"), fields.required_quantity("capacity")
    block = fields.quantity("blockSize")
    return api.ResourceCapacity(name, capacity, api.ONE if block is None else block)


def _claim(fields: Fields, metadata: api.ObjectMeta) -> api.DeviceClaim:
    spec = fields.inner("spec")
    found = api.DeviceClaim(
        metadata,
        spec.each("claims", _instance),
        spec.texts("matchAttributes"),
        read_status(fields.inner("status")),
    )
    spec.finish()
    return found


def _instance(fields: Fields) -> api.ClaimInstance:
    name = fields.text("name")
    one_of = fields.each("oneOf", _detail)
    detail = _detail(fields)
    # With oneOf, an instance must have no field of a detail; validation reports any that is set.
    if one_of and detail == api.ClaimDetail():
        return api.ClaimInstance(None, one_of, name)
    return api.ClaimInstance(detail, one_of, name)


def _detail(fields: Fields) -> api.ClaimDetail:
    return api.ClaimDetail(
        fields.text("deviceType"),
        fields.text("deviceClass"),
        fields.text("constraints"),
        fields.quantities("requests"),
        fields.quantities("limits"),
        fields.texts("matchAttributes"),
        fields.each("configs", _claim_config),
    )


def read_status(fields: Fields) -> api.ClaimStatus:
    """Return the status of a claim, read from ``fields``. Add an error for each unknown field."""
    found = api.ClaimStatus(
        fields.each("allocations", _device_allocation),
        fields.each("classConfigs", _config_object),
        fields.each("claimConfigs", _config_object),
        fields.each("deviceStatuses", read_device_status),
        tuple(sorted(set(fields.texts("podNames")))),
    )
    fields.finish()
    return found


def _config_object(fields: Fields) -> api.ConfigObject:
    content: dict[str, Any] = fields.rest()
    identity = Fields(content, fields.path, fields.errors)
    version, kind = identity.text("apiVersion"), identity.text("kind")
    return api.ConfigObject(version, kind, _metadata(identity), content)


def _device_allocation(fields: Fields) -> api.DeviceAllocation:
    pool, device = fields.text("devicePoolName"), fields.text("deviceName")
    return api.DeviceAllocation(pool, device, fields.each("allocations", _resource_allocation))


def _resource_allocation(fields: Fields) -> api.ResourceAllocation:
    return api.ResourceAllocation(fields.text("name"), fields.required_quantity("allocation"))


def read_device_status(fields: Fields) -> api.DeviceStatus:
    """Return one entry of ``deviceStatuses``, read from ``fields``."""
    return api.DeviceStatus(
        fields.text("devicePoolName"),
        fields.text("deviceName"),
        fields.each("conditions", Fields.rest),
        fields.text("deviceIP"),
        fields.each("deviceIPs", _ip),
        fields.raw_items("deviceInfo"),
        fields.each("allocations", _resource_allocation),
    )


def _ip(fields: Fields) -> str:
    return fields.text("ip")


_CLUSTER_SCOPED = {(api.API_VERSION, "DeviceClass"), (api.API_VERSION, "DevicePool")}
_Reader = Callable[[Fields, api.ObjectMeta], api.Object]
_KINDS: Mapping[str, _Reader] = {
    "DeviceClass": _class,
    "DeviceClaim": _claim,
    "DevicePool": _pool,
}

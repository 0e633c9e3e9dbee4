"""Parse the text of a checkpoint file, as Go's json.Unmarshal does for the kubelet's types.

As in Go, unknown fields are ignored, and field names match regardless of case. Null and absent
fields have the zero value, and a lone surrogate becomes U+FFFD. Unlike Go, the parser rejects bytes
that are not UTF-8, and duplicate keys in objects that it reads. No kubelet writes these, so they
show that the file is damaged.

Each entry has a map from NUMA nodes to device IDs. Kubelets up to v1.19 wrote a list of device IDs
in its place. Kubelets from v1.22 to v1.30 can also read this older format, which is called ``v1``
here. The checksum of a file is the hash of Go's debug output of its contents. For a ``v1`` file,
this output has the list in place of the map, but the type names of the newer format
(``checkpointDataV1.checksum``, pkg/kubelet/cm/devicemanager/checkpoint/checkpointv1.go, v1.22).
"""

from __future__ import annotations

import contextlib
import re
from binascii import a2b_base64
from typing import Final, NoReturn

from checkpoint.decode import Number, Object, Problem, Repeated, Value, decode, shown
from checkpoint.errors import CheckpointCorrupt, ChecksumMismatch
from checkpoint.fnv import fnv1a_32
from checkpoint.model import Checkpoint, PodDevicesEntry
from checkpoint.text import HASHED_HEAD, checksum, render_registered, render_resource

NODE: Final = 0
"""NUMA node to which the devices of a ``v1`` file are assigned."""
_INT64: Final = range(-(1 << 63), 1 << 63)
_UINT64: Final = range(1 << 64)
_NODE: Final = re.compile("[+-]?[0-9]{1,40}")
_BASE64: Final = re.compile("[A-Za-z0-9+/]*={0,2}")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def loads(
    data: bytes, *, source: str = "checkpoint", verify: bool = True, v1: bool = False
) -> Checkpoint:
    """Parse the contents of a checkpoint file. ``source`` is the file's name in errors.

    If ``v1`` is true, also accept a file of a kubelet before v1.20; its devices are assigned to
    NUMA node 0. If ``verify`` is false, ignore the checksum, to inspect a file that a kubelet would
    reject.

    Raises CheckpointCorrupt if the contents are not a checkpoint, and ChecksumMismatch if the
    checksum is wrong.
    """
    try:
        return _loads(data, source, verify, v1=False)
    except CheckpointCorrupt:
        if v1:
            with contextlib.suppress(CheckpointCorrupt):
                return _loads(data, source, verify, v1=True)
        raise


def _loads(data: bytes, source: str, verify: bool, *, v1: bool) -> Checkpoint:
    try:
        entries, registered, found = read_file(decode(data))
        checkpoint = Checkpoint(
            None
            if entries is None
            else tuple([read_entry(item, i, v1=v1) for i, item in enumerate(entries)]),
            None
            if registered is None
            else dict([read_resource(name, ids) for name, ids in registered.items()]),
        )
    except Problem as problem:
        raise CheckpointCorrupt(str(problem), source) from None
    sum_of = checksum_v1 if v1 else checksum
    if verify and (found or 0) != (expected := sum_of(checkpoint)):
        raise ChecksumMismatch(expected, found, source)
    return checkpoint


def read_file(value: Value) -> tuple[list[Value] | None, Object | None, int | None]:
    """Return the JSON values of PodDeviceEntries and RegisteredDevices (None for null), and the
    checksum (None if it is missing; a kubelet then reads 0).

    The elements of both values are not validated yet. Raises Problem if a field has a wrong type.
    """
    file = read_fields(value, "the file", ("Data", "Checksum"))
    data = read_fields(file.get("Data"), "Data", ("PodDeviceEntries", "RegisteredDevices"))
    # The kubelet unmarshals into a checkpoint with empty lists (readCheckpoint, v1.32), so an
    # absent field is empty, and only an explicit null is null.
    entries = read_list(data.get("PodDeviceEntries", []), "Data.PodDeviceEntries")
    registered = read_object(data.get("RegisteredDevices", {}), "Data.RegisteredDevices")
    return entries, registered, _checksum(file.get("Checksum"))


def read_resource(name: str, ids: Value) -> tuple[str, tuple[str, ...] | None]:
    """Parse an element of RegisteredDevices: return the resource name and its device IDs (None for
    null). Raises Problem if ``ids`` is not a list of strings."""
    return _without_surrogates(name), read_strings(ids, f"Data.RegisteredDevices[{shown(name)}]")


_ENTRY: Final = ("PodUID", "ContainerName", "ResourceName", "DeviceIDs", "AllocResp")


def read_entry(value: Value, index: int, *, v1: bool = False) -> PodDevicesEntry:
    """Return the entry in ``value``, element ``index`` of PodDeviceEntries. If ``v1`` is true, its
    devices are a list without NUMA nodes. Raises Problem if the element is invalid."""
    where = f"Data.PodDeviceEntries[{index}]"
    fields = read_fields(value, where, _ENTRY)
    return PodDevicesEntry(
        read_string(fields.get("PodUID"), f"{where}.PodUID"),
        read_string(fields.get("ContainerName"), f"{where}.ContainerName"),
        read_string(fields.get("ResourceName"), f"{where}.ResourceName"),
        (_devices if v1 else _devices_per_numa)(fields.get("DeviceIDs"), f"{where}.DeviceIDs"),
        _bytes(fields.get("AllocResp"), f"{where}.AllocResp"),
    )


def _devices_per_numa(value: Value, where: str) -> dict[int, tuple[str, ...] | None] | None:
    if isinstance(value, list):
        raise Problem(
            f"{where} is a list without NUMA nodes, as written by kubelets before v1.20: "
            "later kubelets, except v1.22 to v1.30, cannot read it"
        )
    nodes = read_object(value, where)
    if nodes is None:
        return None
    devices = {_node(key, where): read_strings(ids, where) for key, ids in nodes.items()}
    if len(devices) != len(nodes):
        raise Problem(f"{where}: duplicate NUMA node: expected each node once")
    return devices


def _devices(value: Value, where: str) -> dict[int, tuple[str, ...] | None] | None:
    ids = read_strings(value, where)
    return None if ids is None else {NODE: ids}


def _node(key: str, where: str) -> int:
    if _NODE.fullmatch(key) and (node := int(key)) in _INT64:
        return node
    raise Problem(f"{where}: invalid NUMA node {shown(key)}: expected a whole number")


def _checksum(value: Value) -> int | None:
    if value is None:
        return None
    if isinstance(value, Number):
        text = value.text
        # The length is checked first: int() raises ValueError for more than 4,300 digits.
        if text.isdecimal() and len(text) <= 20 and (number := int(text)) in _UINT64:
            return number
        raise Problem(f"invalid Checksum {text[:40]}: expected a whole number of 64 bits")
    _mistyped(value, "Checksum", "a number")


def _bytes(value: Value, where: str) -> bytes | None:
    if value is None:
        return None
    # Go ignores line breaks in base64. binascii accepts more padding than Go even in strict mode,
    # hence the regular expression.
    text = read_string(value, where).replace("\n", "").replace("\r", "")
    if len(text) % 4 or not _BASE64.fullmatch(text):
        raise Problem(f"invalid {where}: expected base64")
    return a2b_base64(text)


def read_strings(value: Value, where: str) -> tuple[str, ...] | None:
    """Return the items of a JSON list of strings; None for null. Raises Problem for any other
    value. ``where`` is the name of the list in errors."""
    items = read_list(value, where)
    return None if items is None else tuple([read_string(item, where) for item in items])


def read_string(value: Value, where: str) -> str:
    """Return the text of a JSON string, in which lone surrogates become U+FFFD; an empty string for
    null. Raises Problem for any other value."""
    if isinstance(value, str):
        return value if value.isascii() else _without_surrogates(value)
    if value is None:
        return ""
    _mistyped(value, where, "a string")


def _without_surrogates(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)


def read_list(value: Value, where: str) -> list[Value] | None:
    """Return ``value`` if it is a JSON list; None for null. Raises Problem for any other value."""
    if value is None or isinstance(value, list):
        return value
    _mistyped(value, where, "a list")


def read_object(value: Value, where: str) -> Object | None:
    """Return ``value`` if it is a JSON object; None for null. Raises Problem for any other value,
    and for an object with a duplicate key."""
    if value is None or isinstance(value, dict):
        return value
    if isinstance(value, Repeated):
        raise Problem(f"{where}: duplicate key {shown(value.key)}: expected each key once")
    _mistyped(value, where, "an object")


def read_fields(value: Value, where: str, names: tuple[str, ...]) -> Object:
    """Return those fields of the JSON object ``value`` whose names are in ``names``; an empty dict
    for null.

    The case of a field name is ignored. Keys of the result are written as in ``names``. Raises
    Problem if ``value`` is neither an object nor null, or has a duplicate field.
    """
    found = read_object(value, where) or {}
    # Usual case: all names match exactly. The loop below takes three times as long per entry.
    if all(map(found.__contains__, names)) and len(found) == len(names):
        return found
    folded = {name.casefold(): name for name in names}
    fields: Object = {}
    for key, field in found.items():
        name = folded.get(key.casefold())
        if name is None:
            continue
        if name in fields:
            raise Problem(f"{where}: duplicate field {name}: expected each field once")
        fields[name] = field
    return fields


def _mistyped(value: Value, where: str, expected: str) -> NoReturn:
    raise Problem(f"{where}: expected {expected}, found {_KINDS[type(value)]}")


_KINDS: Final = {
    str: "a string",
    bool: "a boolean",
    list: "a list",
    dict: "an object",
    Repeated: "an object",
    Number: "a number",
}


def checksum_v1(checkpoint: Checkpoint) -> int:
    """Return the checksum of a ``v1`` file from its parsed contents, in which all devices are on
    the NUMA node ``NODE``."""
    entries = checkpoint.entries
    text = "<nil>" if entries is None else f"[{' '.join(map(_hashed, entries))}]"
    registered = checkpoint.registered_devices
    tail = render_registered(
        None
        if registered is None
        else [render_resource(name, registered[name]) for name in sorted(registered)]
    )
    return fnv1a_32(HASHED_HEAD + text.encode() + tail.hashed)


def _hashed(entry: PodDevicesEntry) -> str:
    ids = None if entry.device_ids is None else entry.device_ids[NODE]
    devices = "<nil>" if ids is None else f"[{' '.join(ids)}]"
    data = entry.alloc_resp
    response = "<nil>" if data is None else f"[{' '.join(map(str, data))}]"
    return (
        f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container_name} "
        f"ResourceName:(string){entry.resource_name} DeviceIDs:([]string){devices} "
        f"AllocResp:([]uint8){response}}}"
    )

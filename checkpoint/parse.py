"""From the file's text to the model, as Go's json.Unmarshal reads the kubelet's types.

Like there: unknown fields are ignored, known ones match in any case, null and absent are the
zero value, a lone surrogate becomes U+FFFD. Stricter than there, since no kubelet writes it
and it hides damage: bytes that are not UTF-8, and keys that stand twice in one object.
"""

from __future__ import annotations

import json
import re
from binascii import a2b_base64
from typing import Final, NoReturn, TypeAlias

import attrs

from checkpoint.errors import CheckpointCorrupt, ChecksumMismatch
from checkpoint.model import Checkpoint, PodDevicesEntry
from checkpoint.text import checksum

__all__ = ["loads"]

_INT64: Final = range(-(1 << 63), 1 << 63)
_UINT64: Final = range(1 << 64)
_NODE: Final = re.compile("[+-]?[0-9]{1,40}")
_BASE64: Final = re.compile("[A-Za-z0-9+/]*={0,2}")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@attrs.frozen
class _Number:
    """A JSON number, kept as text: Go takes 1.0 or 1e3 for no integer."""

    text: str


_Value: TypeAlias = object
_Object: TypeAlias = dict[str, _Value]


class _Problem(Exception):
    """What is wrong, before it is known in which file."""


def loads(data: bytes, *, source: str = "checkpoint", verify: bool = True) -> Checkpoint:
    """The checkpoint in ``data``; ``source`` names it in errors.

    Raises CheckpointCorrupt, and ChecksumMismatch unless ``verify`` is false, which is for
    looking into a file that a kubelet would refuse.
    """
    try:
        file = _fields(_decode(data), "the file", ("Data", "Checksum"))
        checkpoint = _checkpoint(file.get("Data"))
        found = _checksum(file.get("Checksum"))
    except _Problem as problem:
        raise CheckpointCorrupt(str(problem), source) from None
    if verify and found != (expected := checksum(checkpoint)):
        raise ChecksumMismatch(expected, found, source)
    return checkpoint


def _decode(data: bytes) -> _Value:
    if not data.strip():
        raise _Problem("the file is empty" if not data else "the file is blank")
    try:
        value: _Value = _DECODER.decode(data.decode())
    except UnicodeDecodeError as error:
        raise _Problem(
            f"not UTF-8 at byte {error.start} of {len(data)}: the file is damaged"
        ) from error
    except json.JSONDecodeError as error:
        raise _Problem(
            f"not JSON at character {error.pos}: {error.msg}: the file is cut off or damaged"
        ) from error
    except RecursionError as error:
        raise _Problem("nested too deeply to be a checkpoint") from error
    return value


def _pairs(pairs: list[tuple[str, _Value]]) -> _Object:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _Problem(f"the key {_shown(twice)} stands twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise _Problem(f"not JSON: {name} is no value")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs,
    parse_int=_Number,
    parse_float=_Number,
    parse_constant=_no_constant,
)


def _checkpoint(value: _Value) -> Checkpoint:
    data = _fields(value, "Data", ("PodDeviceEntries", "RegisteredDevices"))
    where = "Data.PodDeviceEntries"
    # A kubelet reads into a checkpoint of empty lists (readCheckpoint, v1.32): what is
    # absent is empty, and only an explicit null is null.
    entries = _list(data.get("PodDeviceEntries", []), where)
    registered = _object(data.get("RegisteredDevices", {}), where := "Data.RegisteredDevices")
    return Checkpoint(
        None
        if entries is None
        else tuple([_entry(item, f"Data.PodDeviceEntries[{i}]") for i, item in enumerate(entries)]),
        None
        if registered is None
        else {
            _whole(name): _strings(ids, f"{where}[{_shown(name)}]")
            for name, ids in registered.items()
        },
    )


_ENTRY: Final = ("PodUID", "ContainerName", "ResourceName", "DeviceIDs", "AllocResp")


def _entry(value: _Value, where: str) -> PodDevicesEntry:
    fields = _fields(value, where, _ENTRY)
    return PodDevicesEntry(
        _string(fields.get("PodUID"), f"{where}.PodUID"),
        _string(fields.get("ContainerName"), f"{where}.ContainerName"),
        _string(fields.get("ResourceName"), f"{where}.ResourceName"),
        _devices_per_numa(fields.get("DeviceIDs"), f"{where}.DeviceIDs"),
        _bytes(fields.get("AllocResp"), f"{where}.AllocResp"),
    )


def _devices_per_numa(value: _Value, where: str) -> dict[int, tuple[str, ...] | None] | None:
    if isinstance(value, list):
        raise _Problem(
            f"{where} is a list without NUMA nodes: written by a kubelet before v1.20, "
            "whose format no later kubelet reads"
        )
    nodes = _object(value, where)
    if nodes is None:
        return None
    devices = {_node(key, where): _strings(ids, where) for key, ids in nodes.items()}
    if len(devices) != len(nodes):
        raise _Problem(f"{where}: a NUMA node stands twice")
    return devices


def _node(key: str, where: str) -> int:
    if _NODE.fullmatch(key) and (node := int(key)) in _INT64:
        return node
    raise _Problem(f"{where}: {_shown(key)} is no NUMA node: a whole number belongs there")


def _checksum(value: _Value) -> int:
    if value is None:
        return 0
    if isinstance(value, _Number):
        text = value.text
        if text.isdecimal() and len(text) <= 20 and (number := int(text)) in _UINT64:
            return number
        raise _Problem(f"Checksum {text[:40]} is not a whole number of 64 bits")
    _mistyped(value, "Checksum", "a number")


def _bytes(value: _Value, where: str) -> bytes | None:
    if value is None:
        return None
    # Go skips line breaks here; binascii, even when strict, lets more padding pass than Go.
    text = _string(value, where).replace("\n", "").replace("\r", "")
    if len(text) % 4 or not _BASE64.fullmatch(text):
        raise _Problem(f"{where} is not base64")
    return a2b_base64(text)


def _strings(value: _Value, where: str) -> tuple[str, ...] | None:
    items = _list(value, where)
    return None if items is None else tuple([_string(item, where) for item in items])


def _string(value: _Value, where: str) -> str:
    if isinstance(value, str):
        return value if value.isascii() else _whole(value)
    if value is None:
        return ""
    _mistyped(value, where, "a string")


def _whole(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)


def _list(value: _Value, where: str) -> list[_Value] | None:
    if value is None or isinstance(value, list):
        return value
    _mistyped(value, where, "a list")


def _object(value: _Value, where: str) -> _Object | None:
    if value is None or isinstance(value, dict):
        return value
    _mistyped(value, where, "an object")


def _fields(value: _Value, where: str, names: tuple[str, ...]) -> _Object:
    """The object's known fields under their proper names; empty for null."""
    found = _object(value, where) or {}
    if all(map(found.__contains__, names)) and len(found) == len(names):
        return found
    folded = {name.casefold(): name for name in names}
    fields: _Object = {}
    for key, field in found.items():
        name = folded.get(key.casefold())
        if name is None:
            continue
        if name in fields:
            raise _Problem(f"{where}: the field {name} stands twice")
        fields[name] = field
    return fields


def _mistyped(value: _Value, where: str, wanted: str) -> NoReturn:
    raise _Problem(f"{where}: {wanted} belongs there, not {_KINDS[type(value)]}")


_KINDS: Final = {
    str: "a string",
    bool: "a boolean",
    list: "a list",
    dict: "an object",
    _Number: "a number",
}


def _shown(key: str) -> str:
    return json.dumps(key if len(key) <= 60 else f"{key[:60]}…")

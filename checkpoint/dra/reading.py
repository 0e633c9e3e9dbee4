"""Parse ``dra_manager_state`` as the kubelet does.

If a field is missing, the kubelet uses a default: an empty list of claims for ``Data``, and the
checksum of this list for ``Checksum`` (``NewCheckpoint``, pkg/kubelet/cm/dra/state/checkpoint.go).
So ``{}`` is a valid file. A file of a kubelet before v1.32 has a checksum, but no ``Data``. Later
kubelets reject it as corrupt, because the checksum is not that of an empty list.

Unlike Go, the parser rejects bytes that are not UTF-8, and duplicate keys. No kubelet writes
these.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from checkpoint.decode import Number, Object, Problem, Value, decode, decode_text, shown
from checkpoint.dra.gojson import syntax_error
from checkpoint.dra.model import ClaimState, Device, DriverState, State
from checkpoint.dra.text import NULL_CHECKSUM, NULL_TEXT
from checkpoint.errors import CheckpointCorrupt, ChecksumMismatch
from checkpoint.parse import read_fields, read_list, read_object, read_string, read_strings

_UINT32: Final = range(1 << 32)
_OLD: Final = "the format of kubelets before v1.32, which no later kubelet can read"


def loads(data: bytes, *, source: str = "dra_manager_state", verify: bool = True) -> State:
    """Parse the contents of a ``dra_manager_state`` file in the format of kubelet v1.32 and later.
    ``source`` is the name of the file in errors.

    If ``verify`` is false, ignore the checksum. Raises CheckpointCorrupt if the contents are not a
    state file, and ChecksumMismatch if the checksum is wrong.
    """
    try:
        text, found = read_file(decode(data))
        if verify and (expected := crc32(text.encode())) != as_in_kubelet(found):
            raise ChecksumMismatch(expected, found, source)
        return read_data(text)
    except Problem as problem:
        raise CheckpointCorrupt(str(problem), source) from None


def read_file(value: Value) -> tuple[str, int | None]:
    """Return the text in ``Data`` and the checksum in the file (None if it is missing). Raises
    Problem if a field is invalid."""
    fields = read_fields(value, "the file", ("Data", "Checksum"))
    text, checksum = fields.get("Data"), _checksum(fields.get("Checksum"))
    if text is None:
        # With its preset checksum, a kubelet would accept even an old file as an empty list.
        if _is_old(value) and as_in_kubelet(checksum) != NULL_CHECKSUM:
            raise Problem(f"the file has {_OLD}")
        text = NULL_TEXT
    if not isinstance(text, str):
        raise Problem("Data: expected a string with JSON: this is not a DRA state file")
    return read_string(text, "Data"), checksum


def as_in_kubelet(checksum: int | None) -> int:
    """Return the checksum that a kubelet verifies: ``checksum``, or if it is None, the checksum of
    ``NULL_TEXT``."""
    return NULL_CHECKSUM if checksum is None else checksum


def _is_old(value: Value) -> bool:
    return isinstance(value, dict) and "entries" in value and "version" in value


def read_data(text: str) -> State:
    """Return the claims in ``text``, the value of the field ``Data``. Raises Problem if the text is
    invalid."""
    claims = read_claims(text)
    if claims is None:
        return State()
    return State(tuple([read_claim(item, number) for number, item in enumerate(claims)]))


def read_claims(text: str) -> list[Value] | None:
    """Return the elements of ClaimInfoStateList in the JSON text ``text``; None if it is null.

    The elements are not validated yet. Raises Problem if the list cannot be read.
    """
    if not text.strip():
        raise Problem("Data is empty")
    try:
        value = decode_text(text)
    except Problem as problem:
        raise Problem(f"Data: {problem}") from problem
    data = read_fields(value, "Data", ("ClaimInfoStateList",))
    return read_list(data.get("ClaimInfoStateList"), "ClaimInfoStateList")


_CLAIM: Final = ("ClaimUID", "ClaimName", "Namespace", "PodUIDs", "DriverState")


def read_claim(value: Value, number: int) -> ClaimState:
    """Return the claim in ``value``, element ``number`` of ClaimInfoStateList. Raises Problem if
    the element is invalid."""
    where = f"ClaimInfoStateList[{number}]"
    fields = read_fields(value, where, _CLAIM)
    pods = _map(fields.get("PodUIDs"), f"{where}.PodUIDs")
    for uid, mark in pods.items():
        read_object(mark, f"{where}.PodUIDs[{shown(uid)}]")
    drivers = _map(fields.get("DriverState"), f"{where}.DriverState")
    return ClaimState(
        read_string(fields.get("Namespace"), f"{where}.Namespace"),
        read_string(fields.get("ClaimName"), f"{where}.ClaimName"),
        read_string(fields.get("ClaimUID"), f"{where}.ClaimUID"),
        frozenset([read_string(uid, where) for uid in pods]),
        {
            read_string(name, where): _driver(drivers[name], f"{where}.DriverState[{shown(name)}]")
            for name in sorted(drivers)
        },
    )


def _driver(value: Value, where: str) -> DriverState:
    fields = read_fields(value, where, ("Devices", "skipNodeOperations"))
    devices = read_list(fields.get("Devices"), f"{where}.Devices")
    skips = read_strings(fields.get("skipNodeOperations"), f"{where}.skipNodeOperations")
    return DriverState(
        None
        if devices is None
        else tuple([_device(item, f"{where}.Devices[{i}]") for i, item in enumerate(devices)]),
        skips or (),
    )


_DEVICE: Final = ("PoolName", "DeviceName", "ShareID", "RequestNames", "CDIDeviceIDs")


def _device(value: Value, where: str) -> Device:
    fields = read_fields(value, where, _DEVICE)
    share = fields.get("ShareID")
    return Device(
        read_string(fields.get("PoolName"), f"{where}.PoolName"),
        read_string(fields.get("DeviceName"), f"{where}.DeviceName"),
        None if share is None else read_string(share, f"{where}.ShareID"),
        read_strings(fields.get("RequestNames"), f"{where}.RequestNames"),
        read_strings(fields.get("CDIDeviceIDs"), f"{where}.CDIDeviceIDs"),
    )


def _map(value: Value, where: str) -> Object:
    return read_object(value, where) or {}


def _checksum(value: Value) -> int | None:
    if value is None:
        return None
    text = value.text if isinstance(value, Number) else ""
    # The length is checked first: int() raises ValueError for a text of more than 4,300 digits.
    if text.isdecimal() and len(text) <= 10 and (number := int(text)) in _UINT32:
        return number
    shown_text = text[:40] or "of another type"
    raise Problem(f"invalid Checksum {shown_text}: expected a whole number of 32 bits")


# Error messages of the kubelet.


def kubelet_error(data: bytes) -> tuple[str, str] | None:
    """Return the error with which a kubelet rejects the file; None if the kubelet accepts it.

    The error is a pair: the damaged part, and the message. The part is ``data`` if the text in
    ``Data`` is damaged, and ``file`` in all other cases.

    * If the part is not JSON, or if a field outside ``Data`` has a wrong type, the message is that
      of Go's JSON decoder.
    * If the checksum is wrong, if a key outside ``Data`` occurs twice, or if bytes are not UTF-8,
      the message is ``checkpoint is corrupted``.
    * If a field in ``Data`` is invalid, the message is only similar to Go's.
    """
    if error := syntax_error(data):
        return "file", error
    try:
        text, found = read_file(decode(data))
    except Problem:
        return "file", _mistyped(data)
    if crc32(text.encode()) != as_in_kubelet(found):
        return "file", _CORRUPTED
    if error := syntax_error(text.encode()):
        return "data", error
    try:
        read_data(text)
    except Problem as problem:
        error = _mistyped_value(text, "state.CheckpointData")
        return "data", error or f"json: cannot unmarshal: {problem}"
    return None


_CORRUPTED: Final = "checkpoint is corrupted"
_KINDS: Final = {str: "string", bool: "bool", list: "array", dict: "object", Number: "number"}
_TYPES: Final = {"Data": "string", "Checksum": "uint32"}


def _mistyped_value(text: str, wanted: str) -> str | None:
    """Return Go's error for a value of a wrong type; None for an object."""
    try:
        kind = _KINDS.get(type(decode_text(text)))
    except Problem:
        return None
    if kind in (None, "object"):
        return None
    return f"json: cannot unmarshal {kind} into Go value of type {wanted}"


def _mistyped(data: bytes) -> str:
    if error := _mistyped_value(data.decode(errors="replace"), "state.Checkpoint"):
        return error
    try:
        value = decode(data)
        fields = read_fields(value, "the file", tuple(_TYPES))
    except Problem:
        return _CORRUPTED
    for name, expected in _TYPES.items():
        found = fields.get(name)
        kind = _KINDS.get(type(found))
        if isinstance(found, Number):
            kind = f"number {found.text}" if expected == "uint32" else "number"
            if expected == "uint32" and found.text.isdecimal() and int(found.text) in _UINT32:
                continue
        if found is None or kind == expected:
            continue
        return (
            f"json: cannot unmarshal {kind} into Go struct field Checkpoint.{name} "
            f"of type {expected}"
        )
    return _CORRUPTED

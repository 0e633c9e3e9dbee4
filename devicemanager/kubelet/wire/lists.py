"""Decode ListAndWatchResponse messages into columns of devices.

Why not protobuf alone: walking 10,000 devices as messages takes some 13 ms if they have
topology. Two observations make it 2 ms. What follows a device's ID (health and topology) has
few different values, so it is decoded once per value; and the next list of a plugin differs in
few devices, so the others are taken from the list before. To compare and cut bytes, the list is
parsed with a message type of our own (``rawlist``) that leaves each device as bytes.

The cases of a list, by cost:

1. As many devices as before: decode only those whose bytes differ.
2. Another number of devices, below 100,000: decode each one (``_columns``).
3. 100,000 or more: such lists are test cases with repeated devices. Decode each distinct one.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress, count
from operator import ne
from typing import TypeVar, cast

from google.protobuf.message import DecodeError

from devicemanager.core.devices import Nodes
from devicemanager.core.ids import DeviceId
from devicemanager.core.inventory import Columns
from devicemanager.kubelet.wire.errors import WireError
from protos import deviceplugin_v1beta1 as dp
from protos import rawlist_v1beta1 as rawlist

__all__ = ["ListReader", "device_columns"]

T = TypeVar("T")


_ID_TAG = 0x0A
_LONG = 0x80
_MANY = 100_000
"""From this number of devices on, distinct devices are counted first. No real node has as many,
but a list of 4 MiB has room for two million equal ones."""


def device_columns(message: bytes) -> Columns:
    """Decode a ListAndWatchResponse. Raises ``WireError`` if the bytes are not one."""
    return ListReader().read(message)


class ListReader:
    """Decoder of one plugin's lists, in their order. Not thread-safe."""

    def __init__(self) -> None:
        self._devices: list[bytes] = []
        self._columns = Columns([], [], [])

    def read(self, message: bytes) -> Columns:
        """Return the devices of a message. Raises ``WireError`` as ``device_columns`` does."""
        # Parsed with a type that leaves devices as bytes; equal bytes are never decoded twice.
        raw = rawlist.ListAndWatchResponse()
        try:
            raw.ParseFromString(message)
            devices = list(raw.devices)
            columns = self._decode(devices)
        except (DecodeError, UnicodeDecodeError) as error:
            raise WireError(
                f"{len(message)} bytes are not a ListAndWatchResponse ({error}): "
                "the plugin is broken"
            ) from error
        self._devices, self._columns = devices, columns
        return columns

    def _decode(self, devices: list[bytes]) -> Columns:
        """Return the columns of these devices, based on the previous list."""
        # Devices were added or removed, so positions no longer match.
        if len(devices) != len(self._devices):
            return _columns_of_many(devices) if len(devices) >= _MANY else _columns(devices)
        different = list(compress(count(), map(ne, devices, self._devices)))
        new = _columns(devices[number] for number in different)
        last = self._columns
        return Columns(
            _with(last.ids, different, new.ids),
            _with(last.health, different, new.health),
            _with(last.numa, different, new.numa),
        )


def _with(column: list[T], numbers: Iterable[int], values: Iterable[T]) -> list[T]:
    """Return a copy of the column with new values at these positions."""
    copy = column.copy()
    for number, value in zip(numbers, values, strict=True):
        copy[number] = value
    return copy


def _columns_of_many(devices: list[bytes]) -> Columns:
    """Return the columns of a list in which most devices can be equal."""
    distinct = dict.fromkeys(devices)
    if len(distinct) > len(devices) // 2:
        return _columns(devices)
    columns = _columns(distinct)
    places = dict(zip(distinct, count()))
    order = list(map(places.__getitem__, devices))
    return Columns(
        list(map(columns.ids.__getitem__, order)),
        list(map(columns.health.__getitem__, order)),
        list(map(columns.numa.__getitem__, order)),
    )


def _columns(devices: Iterable[bytes]) -> Columns:
    ids: list[str] = []
    health: list[str] = []
    numa: list[Nodes] = []
    states: dict[bytes, tuple[str, Nodes]] = {}
    for device in devices:
        # Encoders write the ID first; its length is one byte if it is below 128.
        if len(device) > 2 and device[0] == _ID_TAG and device[1] < _LONG:
            end = device[1] + 2
            state = states.get(device[end:])
            if state is not None:
                ids.append(device[2:end].decode())
                health.append(state[0])
                numa.append(state[1])
                continue
        # An unknown state, or an encoding other than the usual one: decode the whole device.
        whole = dp.Device.FromString(device)
        state = whole.health, _numa(whole)
        ids.append(whole.ID)
        health.append(state[0])
        numa.append(state[1])
        rest = _rest(device, whole.ID)
        if rest:
            states[rest] = state
    # cast: calling the NewType for each device would cost as much as the whole loop.
    return Columns(cast("list[DeviceId]", ids), health, numa)


def _numa(device: dp.Device) -> Nodes:
    if not device.HasField("topology"):
        return None
    return tuple(node.ID for node in device.topology.nodes)


def _rest(device: bytes, device_id: str) -> bytes:
    """Return the bytes after the ID, if they decode to everything but the ID; otherwise b""."""
    text = device_id.encode()
    if not 0 < len(text) < _LONG or not device.startswith(bytes((_ID_TAG, len(text))) + text):
        return b""
    rest = device[len(text) + 2 :]
    # A second ID after the first would win in a decoder; then the rest is not the state alone.
    return b"" if dp.Device.FromString(rest).ID else rest

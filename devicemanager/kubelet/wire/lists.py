"""Decode ListAndWatchResponse messages into three columns: device IDs, health and NUMA nodes.

Decoding 10,000 devices with topology as protobuf messages takes about 13 ms. This module needs
2 ms, because it avoids most of the decoding:

* The bytes after a device's ID (health and topology) have few different values, and each value is
  decoded only once.
* A plugin's next list usually differs in few devices. All other devices are copied from the
  previous list.

To compare bytes, the list is parsed with another message type (``rawlist``), which leaves each
device as bytes. There are three cases:

1. The list has as many devices as the previous list: decode only devices whose bytes differ.
2. The list has a different number of devices, below 100,000: decode every device (``_columns``).
3. The list has a different number of devices, 100,000 or more: decode every distinct device
   (``_columns_of_many``). Only tests with repeated devices send such lists.
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
from devicemanager.core.printable import counted
from devicemanager.kubelet.wire.errors import WireError
from protos import deviceplugin_v1beta1 as dp
from protos import rawlist_v1beta1 as rawlist

__all__ = ["ListReader", "device_columns"]

T = TypeVar("T")


_ID_TAG = 0x0A
_LONG = 0x80
_MANY = 100_000
"""In lists with at least this many devices, equal devices are decoded only once. Real nodes have
fewer devices, but a list of 4 MiB can have two million equal devices."""


def device_columns(message: bytes) -> Columns:
    """Decode a ListAndWatchResponse into columns: device IDs, health and NUMA nodes.

    Raises ``WireError`` for invalid bytes.
    """
    return ListReader().read(message)


class ListReader:
    """Decoder of the device lists of one plugin. Pass the lists in the order in which the plugin
    sent them. Not thread-safe."""

    def __init__(self) -> None:
        self._devices: list[bytes] = []
        self._columns = Columns([], [], [])

    def read(self, message: bytes) -> Columns:
        """Decode the plugin's next ListAndWatchResponse into columns, as ``device_columns`` does.

        Raises ``WireError`` for invalid bytes.
        """
        # Parsed with a message type that leaves devices as bytes, which can be compared.
        raw = rawlist.ListAndWatchResponse()
        try:
            raw.ParseFromString(message)
            devices = list(raw.devices)
            columns = self._decode(devices)
        except (DecodeError, UnicodeDecodeError) as error:
            raise WireError(
                f"invalid ListAndWatchResponse of {counted(len(message), 'byte')} ({error}): "
                "the plugin is broken"
            ) from error
        # Only after a success: the next list must not be compared with an invalid list.
        self._devices, self._columns = devices, columns
        return columns

    def _decode(self, devices: list[bytes]) -> Columns:
        """Decode the devices of a list, and copy unchanged devices from the previous list."""
        # If devices were added or removed, positions differ from the previous list.
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
    """Return a copy of a column with new values at the positions ``numbers``."""
    copy = column.copy()
    for number, value in zip(numbers, values, strict=True):
        copy[number] = value
    return copy


def _columns_of_many(devices: list[bytes]) -> Columns:
    """Decode each distinct device of a list once; most devices of the list may be equal."""
    distinct = dict.fromkeys(devices)
    # With few equal devices, the look-ups below would cost more than they save.
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
        # Encoders write the ID first. Its length has one byte if it is below 128.
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
        encoded_state = _state_bytes(device, whole.ID)
        if encoded_state:
            states[encoded_state] = state
    # cast: calling the NewType for each device would take as long as the whole loop.
    return Columns(cast("list[DeviceId]", ids), health, numa)


def _numa(device: dp.Device) -> Nodes:
    if not device.HasField("topology"):
        return None
    return tuple(node.ID for node in device.topology.nodes)


def _state_bytes(device: bytes, device_id: str) -> bytes:
    """Return the bytes after a device's ID, which encode its health and topology.

    Returns b"" if the ID is not at the start of ``device``, or if a second ID follows it: then no
    bytes encode health and topology alone.
    """
    text = device_id.encode()
    if not 0 < len(text) < _LONG or not device.startswith(bytes((_ID_TAG, len(text))) + text):
        return b""
    state = device[len(text) + 2 :]
    # A decoder would use a second ID in these bytes, so they would not be the state alone.
    return b"" if dp.Device.FromString(state).ID else state

"""From the bytes of ListAndWatchResponse to columns of devices."""

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
"""From so many devices on it pays to look first how many differ: no node has as many, and a
list of 4 MiB has room for two million that are all the same."""


def device_columns(message: bytes) -> Columns:
    """Read the bytes of a ListAndWatchResponse. Raises ``WireError`` if they are not one."""
    return ListReader().read(message)


class ListReader:
    """Reads the lists of one plugin, one after the other.

    Devices that a list tells as the one before did are not read again: those are nearly
    all when one changes health. Not thread-safe.
    """

    # Walking 10,000 devices as messages costs some 13 ms with topology; cutting their bytes
    # costs 2 ms, because what follows the id (health and topology) takes few different values
    # and is decoded once for each.

    def __init__(self) -> None:
        self._devices: list[bytes] = []
        self._columns = Columns([], [], [])

    def read(self, message: bytes) -> Columns:
        """The devices of a message. Raises as ``device_columns`` does."""
        raw = rawlist.ListAndWatchResponse()
        try:
            raw.ParseFromString(message)
            devices = list(raw.devices)
            columns = self._amended(devices)
        except (DecodeError, UnicodeDecodeError) as error:
            raise WireError(
                f"{len(message)} bytes are not a ListAndWatchResponse ({error}): "
                "the plugin is broken"
            ) from error
        self._devices, self._columns = devices, columns
        return columns

    def _amended(self, devices: list[bytes]) -> Columns:
        """The last list's columns with what differs now."""
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
    """A copy with other values in some places."""
    copy = column.copy()
    for number, value in zip(numbers, values, strict=True):
        copy[number] = value
    return copy


def _columns_of_many(devices: list[bytes]) -> Columns:
    """The same for a list that may say one thing over and over."""
    different = dict.fromkeys(devices)
    if len(different) > len(devices) // 2:
        return _columns(devices)
    read = _columns(different)
    places = dict(zip(different, count()))
    order = list(map(places.__getitem__, devices))
    return Columns(
        list(map(read.ids.__getitem__, order)),
        list(map(read.health.__getitem__, order)),
        list(map(read.numa.__getitem__, order)),
    )


def _columns(devices: Iterable[bytes]) -> Columns:
    ids: list[str] = []
    health: list[str] = []
    numa: list[Nodes] = []
    states: dict[bytes, tuple[str, Nodes]] = {}
    for device in devices:
        # Encoders write the id first; below 128 bytes its length is one byte.
        if len(device) > 2 and device[0] == _ID_TAG and device[1] < _LONG:
            end = device[1] + 2
            state = states.get(device[end:])
            if state is not None:
                ids.append(device[2:end].decode())
                health.append(state[0])
                numa.append(state[1])
                continue
        whole = dp.Device.FromString(device)
        state = whole.health, _numa(whole)
        ids.append(whole.ID)
        health.append(state[0])
        numa.append(state[1])
        rest = _rest(device, whole.ID)
        if rest:
            states[rest] = state
    # NewType's call costs as much as the walk when made once per device.
    return Columns(cast("list[DeviceId]", ids), health, numa)


def _numa(device: dp.Device) -> Nodes:
    if not device.HasField("topology"):
        return None
    return tuple(node.ID for node in device.topology.nodes)


def _rest(device: bytes, device_id: str) -> bytes:
    """The bytes after the id, if they alone say all but the id; else b""."""
    text = device_id.encode()
    if not 0 < len(text) < _LONG or not device.startswith(bytes((_ID_TAG, len(text))) + text):
        return b""
    rest = device[len(text) + 2 :]
    return b"" if dp.Device.FromString(rest).ID else rest

"""Messages to values and back; broken messages are one typed error."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.devices import Device
from devicemanager.core.runoptions import (
    ContainerSettings,
    DeviceSpec,
    Mount,
    NetworkInterface,
    PciDevice,
)
from devicemanager.kubelet.wire.errors import WireError
from devicemanager.kubelet.wire.lists import ListReader, device_columns
from devicemanager.kubelet.wire.settings import (
    settings_from_bytes,
    settings_from_message,
    settings_to_bytes,
    settings_to_message,
)
from protos import deviceplugin_v1beta1 as dp

texts = st.text(max_size=8)
names = st.text(min_size=1, max_size=8)
maps = st.dictionaries(texts, texts, max_size=3).map(lambda d: dict(sorted(d.items())))


def tuples(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(values, max_size=3).map(tuple)


device_specs = st.builds(DeviceSpec, container_path=texts, host_path=texts, permissions=texts)
settings_values = st.builds(
    ContainerSettings,
    envs=maps,
    mounts=tuples(st.builds(Mount, container_path=texts, host_path=texts, read_only=st.booleans())),
    devices=tuples(device_specs),
    annotations=maps,
    cdi_devices=tuples(texts),
    network_interfaces=tuples(st.builds(NetworkInterface, texts, names, texts)),
    pci_devices=tuples(st.builds(PciDevice, texts, texts)),
    filesystem_devices=tuples(device_specs),
)
devices = st.builds(
    Device,
    # IDs of 128 bytes and more have a length of two bytes on the wire.
    st.one_of(texts, st.integers(120, 135).map("x".__mul__)),
    st.sampled_from(["Healthy", "Unhealthy", "", "odd"]),
    st.none() | st.lists(st.integers(-5, 2**40), max_size=3).map(tuple),
)


def numa_of(device: dp.Device) -> tuple[int, ...] | None:
    return tuple(n.ID for n in device.topology.nodes) if device.HasField("topology") else None


def list_message(values: list[Device]) -> bytes:
    message = dp.ListAndWatchResponse()
    for value in values:
        device = message.devices.add(ID=value.id, health=value.health)
        if value.numa is not None:
            device.topology.SetInParent()
            device.topology.nodes.extend(dp.NUMANode(ID=node) for node in value.numa)
    return message.SerializeToString()


@given(settings_values)
def test_settings_survive_a_round_trip_through_bytes(settings: ContainerSettings) -> None:
    data = settings_to_bytes(settings)
    assert settings_from_bytes(data) == settings
    assert settings_from_message(settings_to_message(settings)) == settings
    backwards = attrs.evolve(settings, envs=dict(reversed(settings.envs.items())))
    assert settings_to_bytes(backwards) == data


@given(st.binary(max_size=60))
def test_any_bytes_are_settings_or_a_wire_error(data: bytes) -> None:
    try:
        settings_from_bytes(data)
    except WireError as error:
        assert "\n" not in str(error)


def test_broken_settings_error_names_the_message() -> None:
    with pytest.raises(WireError, match=r"^invalid ContainerAllocateResponse of 3 bytes "):
        settings_from_bytes(b"\x0a\xff\x01")


def test_interface_without_container_name_keeps_its_name() -> None:
    message = dp.ContainerAllocateResponse()
    message.typed_devices.add(netlink=dp.NetlinkDevice(interface_name="eth42"))
    assert settings_from_message(message).network_interfaces == (
        NetworkInterface("eth42", "eth42"),
    )


def test_typed_device_of_unknown_kind_is_rejected() -> None:
    message = dp.ContainerAllocateResponse()
    message.typed_devices.add(pci=dp.PciDevice(vendor_id="8086", product_id="1572"))
    message.typed_devices.add()
    with pytest.raises(WireError, match=r"^typed device 1 of the Allocate response"):
        settings_from_bytes(message.SerializeToString())


def rows(message: bytes) -> tuple[Device, ...]:
    """Return a message's devices as values."""
    columns = device_columns(message)
    return tuple(map(Device, columns.ids, columns.health, columns.numa))


@given(st.lists(devices, max_size=8))
def test_device_lists_are_decoded_as_by_protobuf(values: list[Device]) -> None:
    assert rows(list_message(values)) == tuple(values)


def test_many_repeated_devices_are_decoded_in_order() -> None:
    few = [Device("b", "Healthy", (1,)), Device("a", "odd"), Device("b", "Healthy", (1,))]
    columns = device_columns(list_message(few) * 40_000)
    assert columns.ids == ["b", "a", "b"] * 40_000
    assert columns.health == ["Healthy", "odd", "Healthy"] * 40_000
    assert columns.numa == [(1,), None, (1,)] * 40_000


@given(st.lists(st.lists(devices, min_size=2, max_size=3), max_size=6))
def test_decoding_does_not_depend_on_earlier_lists(lists: list[list[Device]]) -> None:
    reader = ListReader()
    read = [reader.read(list_message(values)) for values in lists]
    for columns, values in zip(read, lists, strict=True):
        assert list(map(Device, columns.ids, columns.health, columns.numa)) == values


def test_broken_list_keeps_the_previous_columns() -> None:
    healthy, unhealthy = Device("a", "Healthy"), Device("b", "Unhealthy", (1,))
    reader = ListReader()
    reader.read(list_message([healthy, healthy]))
    with pytest.raises(WireError):
        reader.read(fields((0x0A, b"\x0a\x50abc"), (0x0A, b"")))
    columns = reader.read(list_message([healthy, unhealthy]))
    assert list(map(Device, columns.ids, columns.health, columns.numa)) == [healthy, unhealthy]


@given(st.lists(st.binary(max_size=12), max_size=6))
def test_any_device_bytes_are_decoded_as_by_protobuf(blobs: list[bytes]) -> None:
    """Cutting bytes agrees with protobuf, also for encodings that no usual encoder writes."""
    data = b"".join(b"\x0a" + bytes([len(blob)]) + blob for blob in blobs)
    try:
        expected = [
            Device(device.ID, device.health, numa_of(device))
            for device in dp.ListAndWatchResponse.FromString(data).devices
        ]
    except Exception:
        with pytest.raises(WireError):
            device_columns(data)
    else:
        assert list(rows(data)) == expected


def fields(*pairs: tuple[int, bytes]) -> bytes:
    return b"".join(bytes([tag, len(value)]) + value for tag, value in pairs)


@pytest.mark.parametrize(
    "blob",
    [
        fields((0x0A, b"a"), (0x12, b"Healthy"), (0x0A, b"b")),
        fields((0x0A, b"b"), (0x12, b"Healthy"), (0x0A, b"b")),
        fields((0x0A, b"a"), (0x12, b"Healthy"), (0x0A, b"")),
        fields((0x12, b"Healthy"), (0x0A, b"a")),
        fields((0x0A, b""), (0x12, b"Healthy")),
        fields((0x12, b"Healthy")),
        fields((0x0A, b"a")),
        b"",
    ],
    ids=["two ids", "one id twice", "id erased", "id last", "id empty", "no id", "id only", "none"],
)
def test_unusual_encodings_are_decoded_as_by_protobuf(blob: bytes) -> None:
    plain = fields((0x0A, b"c"), (0x12, b"Healthy"))
    data = fields((0x0A, plain), (0x0A, blob), (0x0A, plain), (0x0A, blob), (0x0A, plain))
    message = dp.ListAndWatchResponse.FromString(data)
    columns = device_columns(data)
    assert columns.ids == [device.ID for device in message.devices]
    assert columns.health == [device.health for device in message.devices]


def test_device_that_begins_with_another_field_is_decoded_as_by_protobuf() -> None:
    """Its bytes after the first field can be those of a usual device after the ID."""
    healthy = fields((0x12, b"Healthy"))
    for first in (fields((0x12, b"odd")), fields((0x1A, b"")), fields((0x1A, b"\x0a\x02\x08\x01"))):
        data = fields((0x0A, fields((0x0A, b"c")) + healthy), (0x0A, first + healthy))
        message = dp.ListAndWatchResponse.FromString(data)
        assert rows(data) == tuple(
            Device(each.ID, each.health, numa_of(each)) for each in message.devices
        )


@pytest.mark.parametrize(
    "data",
    [b"\x0a\x05\x0a", fields((0x0A, b"\x0a\x50abc")), fields((0x0A, b"\x0a\x01\xff\x12\x01x"))],
    ids=["list cut short", "device cut short", "id is not text"],
)
def test_broken_list_is_a_wire_error(data: bytes) -> None:
    good = fields((0x0A, fields((0x0A, b"c"), (0x12, b"x"))))
    with pytest.raises(WireError, match="invalid ListAndWatchResponse of"):
        device_columns(good + data)


def test_empty_topology_differs_from_no_topology() -> None:
    message = dp.ListAndWatchResponse()
    message.devices.add(ID="a", health="Healthy").topology.SetInParent()
    message.devices.add(ID="b", health="Healthy")
    assert device_columns(message.SerializeToString()).numa == [(), None]


def test_long_id_is_not_cut_like_a_short_one() -> None:
    # The long ID's last byte and the bytes after it are exactly the rest of the short ID.
    short = Device("a", "\x11" + "y" * 17)
    long = Device("x" * 143 + "\x12", "y" * 17)
    assert rows(list_message([short, long])) == (short, long)


def test_second_id_in_a_device_replaces_the_first() -> None:
    first = fields((0x0A, b"b"), (0x12, b"Healthy"), (0x0A, b"b"))
    second = fields((0x0A, b"c"), (0x12, b"Healthy"), (0x0A, b"b"))
    assert device_columns(fields((0x0A, first), (0x0A, second))).ids == ["b", "b"]
